//! Failures on demand: the future calls that fail, and their errors.
//!
//! The simple version: a list of rules, each with a countdown; every call that can fail is compared with every rule.
//! One departure: an atomic flag says whether any rule is set, so that a check without rules costs one load.

use crate::locks::{Leaf, Mutex, lock};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{CallKind, DriverError, Result};

/// The matching calls at which a rule applies.
#[derive(Clone, Copy, Debug)]
enum Times {
    /// Once, after this many matching calls; 0 is the next one.
    After(u64),
    /// At every matching call.
    Always,
}

/// A requested failure: the kind of calls, the time, and the error to return.
#[derive(Debug)]
struct Rule {
    kind: Option<CallKind>,
    times: Times,
    error: Option<DriverError>,
}

/// The requested failures of one driver.
#[derive(Debug, Default)]
pub struct Failures {
    armed: AtomicBool,
    rules: Mutex<Leaf, Vec<Rule>>,
    struck: Mutex<Leaf, Vec<CallKind>>,
}

impl Failures {
    /// Makes the `n`-th call from now on fail, whatever its kind; 0 is the next. Only calls that can fail count.
    pub fn fail_at(&self, n: u64) {
        self.add(Rule { kind: None, times: Times::After(n), error: None });
    }

    /// Makes the `n`-th call of a kind from now on fail; 0 is the next.
    pub fn fail_at_kind(&self, kind: CallKind, n: u64) {
        self.add(Rule { kind: Some(kind), times: Times::After(n), error: None });
    }

    /// Makes the next call of a kind fail with this error.
    pub fn fail_next(&self, kind: CallKind, error: DriverError) {
        self.add(Rule { kind: Some(kind), times: Times::After(0), error: Some(error) });
    }

    /// Makes every call of a kind fail with this error until [`Self::disarm`].
    pub fn fail_every(&self, kind: CallKind, error: DriverError) {
        self.add(Rule { kind: Some(kind), times: Times::Always, error: Some(error) });
    }

    /// Removes every request.
    pub fn disarm(&self) {
        let mut rules = lock(&self.rules);
        rules.clear();
        self.armed.store(false, Ordering::Release);
    }

    /// Returns the kinds of the calls that were made to fail so far, in order.
    pub fn struck(&self) -> Vec<CallKind> {
        lock(&self.struck).clone()
    }

    /// Called once before each call. Returns the call's error if it must fail. `bytes` is for the message.
    #[inline]
    pub fn check(&self, kind: CallKind, bytes: u64) -> Result<()> {
        if self.armed.load(Ordering::Acquire) { self.check_rules(kind, bytes) } else { Ok(()) }
    }

    fn add(&self, rule: Rule) {
        let mut rules = lock(&self.rules);
        rules.push(rule);
        self.armed.store(true, Ordering::Release);
    }

    /// Cold, because it runs only if a test has requested a failure.
    #[cold]
    fn check_rules(&self, kind: CallKind, bytes: u64) -> Result<()> {
        if !kind.can_fail() {
            return Ok(());
        }
        let mut error = None;
        let mut rules = lock(&self.rules);
        // Every rule counts the call, also those after the one that makes it fail.
        rules.retain_mut(|rule| {
            if rule.kind.is_some_and(|of| of != kind) {
                return true;
            }
            let (strikes, stays) = match &mut rule.times {
                Times::After(0) => (true, false),
                Times::After(n) => {
                    *n -= 1;
                    (false, true)
                }
                Times::Always => (true, true),
            };
            if strikes && error.is_none() {
                error = Some(rule.error.clone().unwrap_or_else(|| usual_error(kind, bytes)));
            }
            stays
        });
        self.armed.store(!rules.is_empty(), Ordering::Release);
        drop(rules);
        match error {
            None => Ok(()),
            Some(error) => {
                lock(&self.struck).push(kind);
                Err(error)
            }
        }
    }
}

/// Returns the error that a device most likely returns.
fn usual_error(kind: CallKind, bytes: u64) -> DriverError {
    let call = kind.name();
    match kind {
        CallKind::Create => DriverError::OutOfMemory { call, bytes },
        _ => DriverError::Failed { call, reason: "made to fail".to_owned() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nth_call_fails_once() {
        let failures = Failures::default();
        failures.fail_at(2);
        let outcomes: Vec<bool> = (0..5).map(|_| failures.check(CallKind::Map, 0).is_ok()).collect();
        assert_eq!(outcomes, [true, true, false, true, true]);
        assert_eq!(failures.struck(), [CallKind::Map]);
    }

    #[test]
    fn a_kind_fails_with_its_error() {
        let failures = Failures::default();
        let lost = DriverError::Lost { reason: "pulled out".to_owned() };
        failures.fail_every(CallKind::Submit, lost.clone());
        failures.fail_at_kind(CallKind::Create, 0);
        assert!(failures.check(CallKind::Record, 0).is_ok());
        assert_eq!(failures.check(CallKind::Submit, 0), Err(lost.clone()));
        assert_eq!(failures.check(CallKind::Submit, 0), Err(lost));
        assert!(matches!(failures.check(CallKind::Create, 7), Err(DriverError::OutOfMemory { bytes: 7, .. })));
        assert!(failures.check(CallKind::Create, 7).is_ok());
        failures.disarm();
        assert!(failures.check(CallKind::Submit, 0).is_ok());
    }

    #[test]
    fn calls_that_cannot_fail_do_not_count() {
        let failures = Failures::default();
        failures.fail_at(0);
        assert!(failures.check(CallKind::Forget, 0).is_ok());
        assert!(failures.check(CallKind::Wait, 0).is_err());
    }
}
