//! Puts a verdict into words: both sides, how far the later side comes after the earlier one's stream and why, and the
//! cheapest missing edge.
//!
//! All of it is off the checker's hot path: nothing here decides.

use super::checker::{Call, Checker, Refused, Step, quiet};
use super::finding::{Finding, Known, Side, Subject};
use super::lives::{Found, Freed, Lease, Life, LifeId, Named};
use super::timeline::Learned;
use super::usage::Target;
use crate::ids::{Point, PoolId, Seq, StreamId};
use crate::life::{Fault, Kind, Site, Use};
use crate::op::{Act, Memory, Name, Quoted, Thing, What};
use crate::order::Knows;
use crate::units::Bytes;

impl Checker {
    /// Returns the program's name for a stream.
    pub(super) fn title(&self, call: Call<'_>, stream: StreamId) -> String {
        let ended = || self.time.was(stream).flatten().and_then(|(_, name)| name);
        let name = self.time.stream(stream).map_or_else(ended, |stream| stream.kept.name);
        match name.and_then(|name| call.names.text(name)) {
            Some(name) => format!("stream {}", Quoted(name)),
            None => match self.time.device_among(stream) {
                Some(device) => format!("{} of {device}", stream.on_its_device()),
                None => stream.to_string(),
            },
        }
    }

    /// Describes an operation of a stream or of the host.
    pub(super) fn side(&self, call: Call<'_>, site: Site, verb: &str) -> Side {
        Side { verb: verb.to_owned(), act: None, ..self.act_side(call, site) }
    }

    /// Describes an operation on memory.
    pub(super) fn act_side(&self, call: Call<'_>, site: Site) -> Side {
        Side::new(site, self.title(call, site.stream), call.names)
    }

    /// Describes memory by its number, its size and the program's name for it.
    pub(super) fn subject(&self, call: Call<'_>, memory: Memory, bytes: u64, name: Option<Name>) -> Subject {
        let name = name.and_then(|name| call.names.text(name)).map(|name| name.to_string());
        Subject { id: memory.id, bytes, name }
    }

    pub(super) fn subject_of(&self, call: Call<'_>, life: &Life) -> Subject {
        self.subject(call, life.memory, life.bytes, life.name)
    }

    /// Makes the refusal of an operation that lacks an order.
    #[cold]
    pub(super) fn unordered(&self, call: Call<'_>, life: LifeId, fault: Fault, later: Site) -> Refused {
        let others = fault.ends[1..].iter().map(|end| self.act_side(call, end.site)).collect();
        let mut finding = Finding::unordered(
            fault.kind,
            self.subject_of(call, self.lives.at(life)),
            (self.act_side(call, fault.earlier.site), others),
            fault.ends.iter().map(|end| self.edge(call, end)).collect(),
            self.act_side(call, later),
            self.known(call, fault.earlier, later),
        );
        finding.notes.extend(self.lost_between(call, &fault.ends, later.stream));
        Box::new(finding.met(fault))
    }

    pub(super) fn by(&self, call: Call<'_>, stream: StreamId) -> String {
        let preposition = if stream == StreamId::HOST { "by" } else { "on" };
        format!("{preposition} {}", self.title(call, stream))
    }

    fn known(&self, call: Call<'_>, earlier: Use, later: Site) -> Option<Known> {
        if earlier.site.stream == StreamId::HOST {
            return None;
        }
        let (there, stream) = (self.time.stream(earlier.site.stream), self.time.stream(later.stream));
        // The point of a launch's node may be on another chain than its stream's.
        let chain = there.map_or(earlier.point.chain, |there| there.chain.chain());
        let base = self.time.base_of(call.op.host)?;
        let seen = stream.map_or_else(|| base.seen(chain), |stream| stream.chain.seen(chain));
        let newest = there.and_then(|there| there.newest(seen));
        let Some((verb, op, place)) = newest else {
            let is_none = there.is_some_and(|there| there.remembers_all()) || seen == 0;
            return Some(Known { op: is_none.then_some(0), ..Known::default() });
        };
        let site = Site { act: Act::Read, stream: earlier.site.stream, op, place };
        let mut known = Known { op: Some(op), newest: Some(self.side(call, site, verb)), ..Known::default() };
        let point = Point { chain, seq: seen as Seq };
        let by_stream = stream.into_iter().flat_map(|stream| stream.kept.learned.iter());
        let by_host = self.time.learned_by(call.op.host);
        let tells = |learned: &&Learned| learned.what.covers(point);
        if let Some(learned) = by_stream.chain(by_host).find(tells) {
            known.recorded = learned.recorded.map(|site| self.side(call, site, "recorded"));
            known.through = Some(self.side(call, learned.site, learned.verb));
        }
        Some(known)
    }

    /// Returns the lifetime that a name refers to, for an act on it.
    pub(super) fn resolve(&self, call: Call<'_>, memory: Memory, later: Site) -> Step<Target> {
        match self.lives.find(memory) {
            Found::Named(Named::Life(life)) => Ok(Target { life, is_lease: false }),
            Found::Named(Named::Lease(life)) => Ok(Target { life, is_lease: true }),
            Found::Named(Named::Node { .. }) => match self.output(memory) {
                Some(Ok(life)) => Ok(Target { life, is_lease: false }),
                Some(Err(freed)) => Err(self.after_free(call, memory, Some(freed), later)),
                None => Err(self.never_allocated(call, memory, later)),
            },
            Found::Named(Named::Freed(number)) => Err(self.after_free(call, memory, self.lives.freed(number), later)),
            Found::Named(Named::Void) => Err(quiet()),
            Found::Stale => Err(self.stale_name(call, memory, later)),
            Found::Unknown => Err(match self.graphs.freed.get(&memory) {
                Some(freed) => self.after_free(call, memory, Some(*freed), later),
                None => self.never_allocated(call, memory, later),
            }),
        }
    }

    /// Makes the refusal of an act by a name whose number has a later lifetime.
    #[cold]
    fn stale_name(&self, call: Call<'_>, memory: Memory, later: Site) -> Refused {
        let freed = self.lives.freed_as(memory);
        let (bytes, name) = freed.map_or((0, None), |freed| (freed.bytes, freed.name));
        let subject = self.subject(call, memory, bytes, name);
        let freed = freed.map(|freed| self.act_side(call, freed.by.site));
        let anew = self.lives.latest(memory.id).map(|latest| self.act_side(call, latest.site));
        Box::new(Finding::stale_name(subject, freed, anew, self.act_side(call, later)))
    }

    /// Makes the refusal of an act on freed memory. `freed` is `None` if the free was too long ago.
    #[cold]
    pub(super) fn after_free(&self, call: Call<'_>, memory: Memory, freed: Option<Freed>, later: Site) -> Refused {
        if self.graphs.unmade.contains(&memory) {
            return self.unmade(call, memory);
        }
        let (bytes, name) = freed.map_or((0, None), |freed| (freed.bytes, freed.name));
        let subject = self.subject(call, memory, bytes, name);
        let earlier = freed.map(|freed| self.act_side(call, freed.by.site));
        let later = self.act_side(call, later);
        Box::new(Finding::after_free(subject, earlier, later))
    }

    /// Makes the refusal of a free of host memory on a stream.
    #[cold]
    pub(super) fn pinned(&self, call: Call<'_>, life: LifeId, later: Site) -> Refused {
        let life = self.lives.at(life);
        let subject = self.subject_of(call, life);
        let sentence = format!("{subject} is freed {}, but it is memory of the host", self.by(call, later.stream));
        let help = "free it at once, after its last use has completed (CUDA: `cudaFreeHost`)";
        let mut finding = Finding::new(Kind::DoubleFree, sentence, help);
        finding.subject = Some(subject);
        finding.earlier = Some(self.act_side(call, life.history.born().site));
        finding.later = Some(self.act_side(call, later));
        Box::new(finding)
    }

    /// Makes the refusal of an act on memory that a refused launch would have allocated. It is not reported. It still
    /// has a subject, because a launch that may be withdrawn may allocate that memory.
    #[cold]
    fn unmade(&self, call: Call<'_>, memory: Memory) -> Refused {
        let mut quiet = quiet();
        quiet.subject = Some(self.subject(call, memory, 0, None));
        quiet
    }

    #[cold]
    pub(super) fn never_allocated(&self, call: Call<'_>, memory: Memory, later: Site) -> Refused {
        if self.graphs.unmade.contains(&memory) {
            return self.unmade(call, memory);
        }
        let by = self.by(call, later.stream);
        let finding = match self.lives.find(memory) {
            Found::Named(Named::Node { graph, alloc }) => {
                let node = match self.graphs.called.get(&memory).and_then(|name| call.names.text(*name)) {
                    Some(name) => format!("{}, memory of an alloc node,", Quoted(name)),
                    None => format!("memory of an alloc node of {}", call.names.title(Thing::Graph(graph))),
                };
                Finding::not_launched(&node, later.act, &by, self.graphs.is_freed_by_its_own((graph, alloc)))
            }
            _ => {
                let (name, verb) = (call.names.title(Thing::Memory(memory)), later.act.past());
                let sentence = format!("{name} is {verb} {by} before it is allocated");
                Finding::new(Kind::before_alloc(later.act), sentence, "allocate it first")
            }
        };
        Box::new(finding.of(self.subject(call, memory, 0, None)).at(self.act_side(call, later)))
    }

    /// Makes the refusal of a use of a stream that does not exist.
    #[cold]
    pub(super) fn no_stream(&self, call: Call<'_>, stream: StreamId) -> Refused {
        let title = self.title(call, stream);
        let site = Site { act: Act::Read, stream, op: 0, place: call.op.place };
        let mut finding = match self.time.was(stream) {
            None => {
                let help = "create the stream first";
                Finding::new(Kind::UnknownName, format!("{title} is used, and it was never made"), help)
            }
            Some(ended) => {
                let is_again = matches!(call.op.what, What::StreamDestroy { .. });
                let mut finding = destroyed(Kind::StreamAfterDestroy, &title, is_again, "its last use");
                finding.earlier = ended.map(|(site, _)| self.side(call, site, "destroyed"));
                finding
            }
        };
        finding.later = Some(self.side(call, site, "used"));
        Box::new(finding)
    }

    #[cold]
    pub(super) fn no_pool(&self, call: Call<'_>, pool: PoolId) -> Refused {
        let is_again = matches!(call.op.what, What::PoolDestroy { .. });
        let mut finding = destroyed(
            Kind::PoolAfterDestroy,
            &call.names.title(Thing::Pool(pool)),
            is_again,
            "its last allocation is made",
        );
        finding.later = Some(self.side(call, self.host_site(call, Act::Allocate), "used"));
        Box::new(finding)
    }

    pub(super) fn leaked(&self, call: Call<'_>, life: &Life) -> Finding {
        let subject = self.subject_of(call, life);
        let site = life.history.born().site;
        let sentence = format!("{subject} is never freed");
        let mut finding = Finding::new(Kind::Leak, sentence, "free it after its last use");
        finding.subject = Some(subject);
        finding.earlier = Some(self.act_side(call, site));
        finding
    }

    pub(super) fn leaked_lease(&self, call: Call<'_>, life: &Life, lease: &Lease) -> Finding {
        let subject = self.subject_of(call, life);
        let sentence =
            format!("{subject} was imported by {} ({}) and never released", lease.process, Bytes(life.bytes));
        let mut finding = Finding::new(Kind::Leak, sentence, "free the import after its last use");
        finding.subject = Some(subject);
        let site = Site { act: Act::Allocate, stream: StreamId::HOST, op: 0, place: lease.place };
        finding.earlier = Some(self.side(call, site, "imported"));
        finding
    }
}

/// Makes the finding of a use of a destroyed thing, or of a second destruction of it if `is_again`.
fn destroyed(kind: Kind, title: &str, is_again: bool, last: &str) -> Finding {
    if is_again {
        return Finding::new(kind, format!("{title} is destroyed twice"), "destroy it once");
    }
    Finding::new(kind, format!("{title} is used after it was destroyed"), format!("destroy it after {last}"))
}
