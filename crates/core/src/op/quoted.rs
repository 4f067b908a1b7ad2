//! The program's names in messages: within backticks and on one line, whatever they contain.

use std::fmt::{self, Write as _};

/// A name within backticks. Backticks and control characters in it are escaped, so that its end is clear.
#[derive(Clone, Copy, Debug)]
pub struct Quoted<'a>(pub &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('`')?;
        for c in self.0.chars() {
            match c {
                '`' => f.write_str("\\`")?,
                c => write_visible(f, c)?,
            }
        }
        f.write_char('`')
    }
}

/// Text from a file on one line, whatever it contains. As [`Quoted`], but without backticks around it.
#[derive(Clone, Copy, Debug)]
pub struct Visible<'a>(pub &'a str);

impl fmt::Display for Visible<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| write_visible(f, c))
    }
}

fn write_visible(f: &mut fmt::Formatter<'_>, c: char) -> fmt::Result {
    match c {
        // Line and paragraph separators end lines, too. Direction marks would reverse the text after them.
        '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => write!(f, "{}", c.escape_unicode()),
        c if c.is_control() => write!(f, "{}", c.escape_default()),
        c => f.write_char(c),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_ends_where_it_ends() {
        let quoted = |name| Quoted(name).to_string();
        assert_eq!(quoted("weights, layer 3"), "`weights, layer 3`");
        assert_eq!(quoted("Gewicht \u{e4}"), "`Gewicht \u{e4}`");
        assert_eq!(quoted("a\nhelp: free `b` \u{1b}[2J\u{2028}"), "`a\\nhelp: free \\`b\\` \\u{1b}[2J\\u{2028}`");
    }
}
