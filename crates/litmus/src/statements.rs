//! Tables of statements. Each row has the shape of a line and the code that lowers it.
//!
//! Lines are matched with the rows, and messages show the rows to a user whose line nearly matches.

/// Makes a method that lowers a line by the row that its words match, and a table of the shapes of such lines. A row
/// has the words (each a text, or a variable that stands for one), optionally a text that shows the rest of them, and
/// the code. The method returns `Ok(None)` if no row matches.
macro_rules! statements {
    (
        $(#[$doc:meta])*
        fn $name:ident(&mut $self:ident, $words:ident) -> $value:ty, $table:ident;
        $([$($word:pat),+] $($rest:literal)? => $act:expr;)+
    ) => {
        /// The shapes of such lines.
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

/// The shape of a line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// The patterns of its words.
    pub(crate) words: &'static [&'static str],
    /// A text that shows the rest of the words.
    pub(crate) rest: &'static str,
}

impl Shape {
    /// Returns `true` if this is the statement's verb: the first word, or the one after `=`.
    pub(crate) fn is_of(self, verb: &str) -> bool {
        let word = match self.words {
            [_, "\"=\"", word, ..] | [word, ..] => word,
            [] => "",
        };
        word.split('"').skip(1).step_by(2).any(|text| text == verb)
    }

    /// Returns the shape as it is written, with names in capitals.
    pub(crate) fn text(self) -> String {
        let words = self.words.iter().map(|word| shown(word)).filter(|word| !word.is_empty());
        let rest = Some(self.rest.to_owned()).filter(|rest| !rest.is_empty());
        words.chain(rest).collect::<Vec<_>>().join(" ")
    }
}

/// Returns a pattern as a word of the language.
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

    /// Returns the texts within backticks before the last column of each table row.
    fn documented() -> impl Iterator<Item = &'static str> {
        let (_, statements) = LANGUAGE.split_once("## Statements").expect("there is such a chapter");
        let rows = statements.lines().filter(|line| line.starts_with("| `"));
        rows.flat_map(|row| row[1..].split('|').next().unwrap_or("").split('`').skip(1).step_by(2))
    }

    /// Returns all forms of a shape: `(a | b)` gives one of the options, `[a | b]` one or none.
    fn forms(text: &str) -> Vec<String> {
        let Some(open) = text.find(['(', '[']) else { return vec![text.to_owned()] };
        let (inside, behind) = text[open + 1..].split_once([')', ']']).expect("a bracket is closed");
        let none = Some("").filter(|_| text[open..].starts_with('['));
        let options = inside.split(" | ").chain(none);
        let before = &text[..open];
        options.flat_map(|option| forms(behind).into_iter().map(move |end| format!("{before}{option}{end}"))).collect()
    }

    /// Returns `true` unless the line could not be read. A refusal of an unknown name counts as read.
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

    /// Formats a number as the documentation does: `200 000`.
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
