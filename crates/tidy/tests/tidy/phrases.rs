//! Private words for things that the field has words for: they are counted, and the count may only fall.

use crate::source::{self, words};
use crate::{PRIVATE_WORDS, root};

/// Counts a word in a text, in upper and lower case.
fn count(text: &str, word: &str) -> usize {
    words(&text.to_lowercase(), word).count()
}

#[test]
fn words_of_our_own_become_fewer() {
    let sources = source::read_tree(&root());
    let in_src = sources.iter().filter(|source| source.path.contains("/src/"));
    let texts: Vec<&str> = in_src.map(|source| source.text.as_str()).collect();
    let mut wrong = String::new();
    for (word, instead, known) in PRIVATE_WORDS {
        let found: usize = texts.iter().map(|text| count(text, word)).sum();
        if found > *known {
            wrong += &format!("\n`{word}` stands {found} times, which were {known}: write \"{instead}\"");
        } else if found < *known {
            wrong += &format!("\n`{word}` stands only {found} times: write that instead of {known} in the rule book");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn a_word_of_our_own_is_found() {
    assert_eq!(count("// The work is over.\n// Is over: is overdue", "is over"), 2);
}
