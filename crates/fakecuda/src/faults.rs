//! Failures on demand, by the setting for all threads or by hooks for the calling thread; and counts of calls.
//!
//! Knows names and codes.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

use millpond_driver::cuda::abi::Code;

use crate::lock;

/// A rule: this call of a function returns that code.
#[derive(Debug)]
struct Rule {
    function: String,
    after: u64,
    code: Code,
}

thread_local! {
    static RULES: RefCell<Vec<Rule>> = const { RefCell::new(Vec::new()) };
    static HIDDEN: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    static CALLS: RefCell<HashMap<&'static str, u64>> = RefCell::default();
}

static FROM_SETTING: LazyLock<Mutex<Vec<Rule>>> = LazyLock::new(|| {
    let setting = std::env::var("FAKECUDA_FAIL").unwrap_or_default();
    Mutex::new(setting.split(',').filter_map(parse).collect())
});

/// `cuMemCreate@3=2`; anything else is not a rule.
fn parse(text: &str) -> Option<Rule> {
    let (function, rest) = text.split_once('@')?;
    let (after, code) = rest.split_once('=')?;
    Some(Rule { function: function.to_owned(), after: after.parse().ok()?, code: Code(code.parse().ok()?) })
}

pub(crate) fn fail(function: String, after: u64, code: Code) {
    RULES.with_borrow_mut(|rules| rules.push(Rule { function, after, code }));
}

pub(crate) fn hide(function: String) {
    HIDDEN.with_borrow_mut(|hidden| hidden.push(function));
}

pub(crate) fn reset() {
    RULES.with_borrow_mut(Vec::clear);
    HIDDEN.with_borrow_mut(Vec::clear);
}

pub(crate) fn is_hidden(function: &str) -> bool {
    HIDDEN.try_with(|hidden| hidden.borrow().iter().any(|it| it == function)).unwrap_or(false)
}

/// Returns the number of calls of a function that this thread has made.
pub(crate) fn calls(function: &str) -> u64 {
    CALLS.with_borrow(|calls| calls.get(function).copied().unwrap_or_default())
}

/// Counts a call. Returns the code that it must return instead of doing anything.
pub(crate) fn strike(function: &'static str) -> Option<Code> {
    // A thread that ends may make calls after its rules and counts are gone.
    let _ = CALLS.try_with(|calls| *calls.borrow_mut().entry(function).or_default() += 1);
    let own = RULES.try_with(|rules| strike_in(&mut rules.borrow_mut(), function)).unwrap_or(None);
    own.or_else(|| strike_in(&mut lock(&FROM_SETTING), function))
}

fn strike_in(rules: &mut Vec<Rule>, function: &str) -> Option<Code> {
    let mut code = None;
    rules.retain_mut(|rule| match rule.after {
        _ if rule.function != function => true,
        0 => {
            code = Some(rule.code);
            false
        }
        _ => {
            rule.after -= 1;
            true
        }
    });
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_and_count_down() {
        assert!(parse("cuMemMap").is_none() && parse("cuMemMap@x=1").is_none());
        let mut rules: Vec<Rule> = "cuMemMap@1=999,cuInit@0=3".split(',').filter_map(parse).collect();
        let calls = ["cuMemMap", "cuInit", "cuInit", "cuMemMap", "cuMemMap"];
        let answers: Vec<Option<Code>> = calls.iter().map(|call| strike_in(&mut rules, call)).collect();
        assert_eq!(answers, [None, Some(Code(3)), None, Some(Code(999)), None]);
    }
}
