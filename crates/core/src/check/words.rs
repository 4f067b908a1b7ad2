//! The wrong orders in words: what the library refuses and what the checker finds is said by the same sentences.
//!
//! Knows sides with their names. Decides nothing.

use super::finding::{Edge, Finding, Known, Side, Subject};
use crate::life::Kind;
use crate::op::Act;

impl Finding {
    /// Operations without the order that they need: the earlier side and all others have to come before
    /// the later one. That side comes after what `known` says; the `missing` edges settle it.
    pub fn unordered(
        kind: Kind,
        subject: Subject,
        (earlier, others): (Side, Vec<Side>),
        missing: Vec<Edge>,
        later: Side,
        known: Option<Known>,
    ) -> Self {
        let (noun, it) = (earlier.name(), later.name());
        let (verb, by) = (&later.verb, later.by());
        let sentence =
            format!("{subject} is {verb} {by}, but nothing makes that {it} wait for the {noun} {}", earlier.by());
        let known = known.filter(|_| earlier.process.is_none() && !earlier.is_host());
        Finding { others, missing, known, ..Self::about(kind, subject, Some(earlier), later, sentence, "") }
    }

    /// An act on memory that is freed; `freed` is not known where it is too long ago.
    pub fn after_free(subject: Subject, freed: Option<Side>, later: Side) -> Self {
        Self::after_free_of(&subject.to_string(), freed, later).of(subject)
    }

    /// As [`after_free`](Self::after_free), of memory that has no number of its own: what it is called.
    pub fn after_free_of(what: &str, freed: Option<Side>, later: Side) -> Self {
        let how = freed.as_ref().map_or(Act::Free.past(), |freed| &freed.verb);
        let sentence = format!("{what} is {} {}, but it is {how} already", later.verb, later.by());
        let (kind, advice) = match later.act {
            Some(Act::Free) => (Kind::DoubleFree, "free it once"),
            Some(Act::Write) => (Kind::UseAfterFree, "free it after this write, or allocate anew"),
            _ => (Kind::UseAfterFree, "free it after this read, or allocate anew"),
        };
        Finding { earlier: freed, ..Finding::new(kind, sentence, advice) }.at(later)
    }

    /// An act by a name from before memory was freed and allocated anew. The free is not known where that is too long
    /// ago; `anew` is what allocated it last, if that lives.
    pub fn stale_name(subject: Subject, freed: Option<Side>, anew: Option<Side>, later: Side) -> Self {
        let what = match subject.bytes {
            0 => subject.id.to_string(),
            _ => subject.to_string(),
        };
        let (verb, by) = (&later.verb, later.by());
        let sentence = format!("{what} is {verb} {by}, by a name from before it was freed and allocated anew");
        let kind = if later.act == Some(Act::Free) { Kind::StaleFree } else { Kind::UseAfterFree };
        let advice = "use the name that its latest allocation gave it, or free it later";
        let mut finding = Self::about(kind, subject, freed, later, sentence, advice);
        if let Some(anew) = anew {
            finding.notes.push(format!("allocated anew: {}{}", anew.title(), anew.spot.in_brackets()));
        }
        finding
    }

    /// The owner frees what another process holds.
    pub fn while_imported(subject: Subject, process: String, import: Side, later: Side) -> Self {
        let sentence = format!("{subject} is freed {} while {process} holds it", later.by());
        let advice = format!(
            "let {process} free its import first, and order this free after that; or drop the buffer: its memory goes \
             back when the last holder is done with it"
        );
        Self::about(Kind::FreeWhileImported, subject, Some(import), later, sentence, advice)
    }

    fn about(
        kind: Kind,
        subject: Subject,
        earlier: Option<Side>,
        later: Side,
        sentence: String,
        advice: impl Into<String>,
    ) -> Self {
        let finding = Finding::new(kind, sentence, advice);
        Finding { subject: Some(subject), earlier, later: Some(later), ..finding }
    }
}
