//! The findings about missing order and access, in words. The library's refusals and the checker's findings use the
//! same sentences.
//!
//! Knows sides with their names. Decides nothing.

use super::finding::{Edge, Finding, Known, Side, Subject};
use crate::life::Kind;
use crate::op::{Act, Part};

impl Finding {
    /// Makes the finding of operations that lack an order: the earlier side and all `others` have to come before the
    /// later one. `known` is the order that exists; the `missing` edges settle it.
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

    /// Makes the finding of an act on freed memory. `freed` is `None` if the free was too long ago.
    pub fn after_free(subject: Subject, freed: Option<Side>, later: Side) -> Self {
        Self::after_free_of(&subject.to_string(), freed, later).of(subject)
    }

    /// As [`after_free`](Self::after_free), for memory that has no number of its own. `what` is its name.
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

    /// Makes the finding of an act by a name from before the memory was freed and allocated anew. `freed` is `None` if
    /// the free was too long ago. `anew` is the latest allocation, if it is live.
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

    /// Makes the finding of a free by the owner while another process holds the memory.
    pub fn while_imported(subject: Subject, process: String, import: Side, later: Side) -> Self {
        let sentence = format!("{subject} is freed {} while {process} holds it", later.by());
        let advice = format!(
            "let {process} free its import first, and order this free after that; or drop the buffer: its memory goes \
             back when the last holder is done with it"
        );
        Self::about(Kind::FreeWhileImported, subject, Some(import), later, sentence, advice)
    }

    /// Makes the finding of a use of memory of the device `owner` by a device without access. The pool has to grant it,
    /// or the owner itself if `pool` is `None`. `before` says when.
    pub fn no_access(
        subject: Subject,
        (owner, pool): (&str, Option<&str>),
        (device, before): (&str, &str),
        born: Side,
        later: Side,
    ) -> Self {
        let (verb, to) = if later.act == Some(Act::Read) { ("read", "read") } else { ("written", "write") };
        let used = format!("{subject} of {owner} is {verb} by {device}");
        let (sentence, help) = match pool {
            Some(pool) => (
                format!("{used}, and {pool} does not grant it that"),
                format!("grant {device} access to {pool} {before}, to {to} it"),
            ),
            None => (
                format!("{used}, which has no peer access to {owner}"),
                format!("enable peer access of {device} to {owner} {before}"),
            ),
        };
        Self::about(Kind::NoAccess, subject, Some(born), later, sentence, help)
    }

    /// A pool takes access away from a device whose work may still use the memory: the uses that are cut off, each with
    /// the edge by which it is waited for.
    pub fn in_use(pool: &str, device: &str, mut cut: Vec<(Side, Edge)>, later: Side) -> Self {
        cut.sort_by_key(|(side, _)| (side.stream, side.op));
        let sentence = format!("{device} loses access to {pool}, and work of it may still use the memory");
        let (mut sides, missing): (Vec<_>, Vec<_>) = cut.into_iter().unzip();
        let earlier = (!sides.is_empty()).then(|| sides.remove(0));
        let finding = Finding::new(Kind::NoAccess, sentence, "synchronize that work first");
        Finding { earlier, others: sides, missing, ..finding }.at(later)
    }

    /// Makes the finding of a copy whose source and target have bytes in common. `what` is the memory, which has `size`
    /// bytes. `act` and `part` are those of the source or of the target. `other` has the bytes of the other one. `by`
    /// says who copies: `on stream 1`.
    pub fn overlap(what: &str, size: u64, (act, part): (Act, Part), other: Part, by: &str, later: Side) -> Self {
        let bytes = |part: Part| format!("{}..{}", part.from(), part.to().min(size));
        let (sentence, help) = match Part::new(part.from().max(other.from()), part.to().min(other.to())) {
            Some(shared) if !(part.is_whole() && other.is_whole()) => {
                let (source, target) = if act == Act::Read { (part, other) } else { (other, part) };
                let (source, target) = (bytes(source), bytes(target));
                (
                    format!("bytes {} of {what} are read and written by one copy {by}", bytes(shared)),
                    format!(
                        "copy between bytes that do not overlap (these are {source} and {target}), or through other \
                         memory"
                    ),
                )
            }
            _ => (format!("{what} is copied to itself {by}"), "copy from or to other memory".to_owned()),
        };
        Finding::new(Kind::Aliased, sentence, help).at(later)
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
