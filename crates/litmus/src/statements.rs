//! The table of a family of statements: each row is what a line looks like and what is done then.
//!
//! The rows are both what lines are matched with and what a message shows to who nearly wrote one.

/// Makes a method that does what the row of a line's words says, and the table of what such lines look like. A row is
/// the words, each a text or a name that stands for one, perhaps how the rest of them reads, and what is done. The
/// method answers none where no row has such words.
macro_rules! statements {
    (
        $(#[$doc:meta])*
        fn $name:ident(&mut $self:ident, $words:ident) -> $value:ty, $table:ident;
        $([$($word:pat),+] $($rest:literal)? => $act:expr;)+
    ) => {
        /// What such lines look like.
        pub(crate) const $table: &[$crate::statements::Shape] =
            &[$($crate::statements::Shape { words: &[$(stringify!($word)),+], rest: concat!($($rest)?) }),+];

        $(#[$doc])*
        pub(crate) fn $name(&mut $self, $words: &[&str]) -> Result<Option<$value>, $crate::Refusal> {
            match *$words {
                $([$($word),+] => $act.map(Some),)+
                _ => Ok(None),
            }
        }
    };
}
pub(crate) use statements;

/// What a line looks like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// The patterns of its words.
    pub(crate) words: &'static [&'static str],
    /// How the words behind read.
    pub(crate) rest: &'static str,
}

impl Shape {
    /// The word that says what is done: the first, or the one behind `=`.
    pub(crate) fn is_of(self, verb: &str) -> bool {
        let word = match self.words {
            [_, "\"=\"", word, ..] | [word, ..] => word,
            [] => "",
        };
        word.split('"').skip(1).step_by(2).any(|text| text == verb)
    }

    /// As it is written, with names in capitals.
    pub(crate) fn text(self) -> String {
        let words = self.words.iter().map(|word| shown(word)).filter(|word| !word.is_empty());
        let rest = Some(self.rest.to_owned()).filter(|rest| !rest.is_empty());
        words.chain(rest).collect::<Vec<_>>().join(" ")
    }
}

/// A pattern as a word of the language.
fn shown(pattern: &str) -> String {
    if pattern.ends_with("..") {
        return String::new();
    }
    let texts: Vec<&str> = pattern.split('"').skip(1).step_by(2).collect();
    match (pattern, &texts[..]) {
        ("bytes", _) => "1024".to_owned(),
        ("device", _) => "1".to_owned(),
        ("owner", _) => "0".to_owned(),
        (name, []) => name.to_uppercase(),
        (_, [text]) => (*text).to_owned(),
        (_, texts) => format!("({})", texts.join(" | ")),
    }
}

#[cfg(test)]
mod tests {
    use super::Shape;
    use crate::Program;
    use crate::bounds::NODES_MAX;
    use crate::lower::symbols::WORDS;
    use crate::lower::{DEPTH_MAX, Lower, OPS_MAX, ROUNDS_MAX, WORDS_MAX, shapes};
    use crate::text::TEXT_MAX;

    const LANGUAGE: &str = include_str!("../tests/language.md");

    /// What is within backticks before the last column of a table's row.
    fn documented() -> impl Iterator<Item = &'static str> {
        let (_, statements) = LANGUAGE.split_once("## Statements").expect("there is such a chapter");
        let rows = statements.lines().filter(|line| line.starts_with("| `"));
        rows.flat_map(|row| row[1..].split('|').next().unwrap_or("").split('`').skip(1).step_by(2))
    }

    /// Each of the forms that a shape has: of `(a | b)` one, of `[a | b]` one or none.
    fn forms(text: &str) -> Vec<String> {
        let Some(open) = text.find(['(', '[']) else { return vec![text.to_owned()] };
        let (inside, behind) = text[open + 1..].split_once([')', ']']).expect("a bracket is closed");
        let none = Some("").filter(|_| text[open..].starts_with('['));
        let options = inside.split(" | ").chain(none);
        let before = &text[..open];
        options.flat_map(|option| forms(behind).into_iter().map(move |end| format!("{before}{option}{end}"))).collect()
    }

    /// What is said of names that nothing made before is another matter.
    fn is_understood(refusal: &str) -> bool {
        ["is not a statement", "is not understood", "is no work"].iter().all(|unread| !refusal.contains(unread))
    }

    #[test]
    fn every_shape_is_read_and_documented() {
        for shape in shapes().filter(|shape| !shape.words.contains(&"\"repeat\"")) {
            for form in forms(&shape.text()) {
                let refusal = Program::parse(&form).err().map(|refusal| refusal.to_string()).unwrap_or_default();
                assert!(is_understood(&refusal), "{form}: {refusal}");
            }
            let verb = |text: &str| text.split_whitespace().any(|word| shape.is_of(word));
            assert!(documented().any(verb), "docs/litmus.md does not have `{}`", shape.text());
        }
    }

    #[test]
    fn every_line_of_the_docs_is_a_statement() {
        let lines: Vec<&str> = documented().collect();
        assert!(lines.len() > 60, "{lines:?}");
        for line in lines {
            let refusal = Program::parse(line).err().map(|refusal| refusal.to_string()).unwrap_or_default();
            assert!(is_understood(&refusal), "{line}: {refusal}");
        }
    }

    #[test]
    fn reserved_words_and_limits_are_documented() {
        let (_, words) = LANGUAGE.split_once("The words `").expect("they are listed");
        let (words, _) = words.split_once("cannot be names").expect("that is said of them");
        let documented: Vec<&str> = words.split('`').step_by(2).filter(|word| !word.trim().is_empty()).collect();
        let mut reserved = WORDS.to_vec();
        reserved.sort_unstable();
        assert_eq!(documented, reserved);
        let (_, limits) = LANGUAGE.split_once("## Limits").expect("there is such a chapter");
        let mebibytes = format!("{} MiB", TEXT_MAX >> 20);
        let counts = [OPS_MAX as u64, WORDS_MAX as u64, ROUNDS_MAX, DEPTH_MAX as u64, NODES_MAX];
        for limit in counts.map(grouped).iter().chain([&mebibytes]) {
            assert!(limits.contains(&format!("| {limit} |")), "docs/litmus.md does not have {limit}");
        }
    }

    /// A number as the docs write it: `200 000`.
    fn grouped(number: u64) -> String {
        match number {
            0..1000 => number.to_string(),
            _ => format!("{}{:03}", grouped(number / 1000) + " ", number % 1000),
        }
    }

    #[test]
    fn shapes_read_as_lines_do() {
        let texts: Vec<String> = shapes().chain(Lower::NODE_WORK).map(|shape: &Shape| shape.text()).collect();
        for text in [
            "set races (on | off)",
            "stream S [nonblocking | per-thread | legacy] [on 1]",
            "A = alloc S 1024 from P",
            "node N in G [after M]: write A",
            "kernel read A write B",
            "edge N -> M in G",
            "repeat 3",
        ] {
            assert!(texts.iter().any(|it| it == text), "{text} in {texts:#?}");
        }
    }
}
