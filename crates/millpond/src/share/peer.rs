//! An exporter, as an importer sees it: its socket, its process, questions and messages. The core has the rules for
//! messages and the list of known chunks (`millpond_core::share::ImporterEnd`).
//!
//! An import has one deadline for all its questions. The device's thread waits for a reply that comes later, and what
//! it grants is returned.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, OnceLock};
use std::time::{Duration, Instant};

use millpond_core::share::{Claim, ImporterEnd, Limits, MemoryGrant, Next as Step, Part, Reply, Request};
use millpond_core::share::{Ticket, TicketKind, Wrong};
use millpond_driver::locks::{Mutex, lock, wait_timeout};
use millpond_driver::{Driver, RawChunk};
use rustix::io::Errno;
use rustix::net::sockopt::Timeout;

use super::foreign::Speaker;
use super::socket::{self, ProcessKey, Received};
use super::thread::{Called, Entry, Next, Watch};
use crate::clock::hosts;
use crate::names::config::GRAIN;
use crate::names::error::{Error, Result};
use crate::names::share_error::ShareError;
use crate::state::context::Context;
use crate::sync::ranks;

/// A connection to an exporter.
#[derive(Debug)]
pub(crate) struct Peer {
    /// The name of its socket.
    pub(super) name: u128,
    /// The number of its process.
    pub(super) process: u32,
    key: ProcessKey,
    /// Readable once the process has ended; `None` if the system has no such files.
    pub(super) life: Option<OwnedFd>,
    /// The time at which it was first seen to be gone.
    left: OnceLock<Instant>,
    socket: OwnedFd,
    pub(super) watch: Arc<Watch>,
    /// The speaker for its chains here, set once it has said which device it is.
    speaker: OnceLock<Speaker>,
    state: Mutex<ranks::Table, State>,
    /// Signalled when a question has ended.
    answered: Condvar,
}

#[derive(Debug, Default)]
struct State {
    end: ImporterEnd<RawChunk>,
    /// The buffer for replies.
    room: Vec<u8>,
    /// `true` while the thread sends the packets for which there was no room.
    is_watched: bool,
}

/// A process that ends closes its socket at most this long before it has ended.
const PARTING: Duration = Duration::from_millis(250);
/// The longest single wait of a caller for room.
const ROOM_STEP: Duration = Duration::from_millis(20);

impl Peer {
    pub(super) fn connect(context: &Context, name: u128, until: Instant) -> Result<Peer> {
        let connecting = "connect to the exporter";
        let socket = socket::connect(name, until).map_err(|error| match error {
            Errno::CONNREFUSED | Errno::NOENT => Error::from(ShareError::ExporterGone),
            Errno::AGAIN => no_answer(),
            other => ShareError::system(connecting)(other),
        })?;
        let party = socket::party(&socket).map_err(ShareError::system(connecting))?;
        if !context.share.allows(party.user) {
            return Err(ShareError::OtherUser { user: party.user }.into());
        }
        let life = socket::life(&socket, party).map_err(|error| match error {
            Errno::SRCH | Errno::INVAL => ShareError::ExporterGone.into(),
            other => ShareError::system(connecting)(other),
        })?;
        let key = socket::process_key(party, life.as_ref(), context.share.next_key());
        let watch = context.share.watch()?;
        let (left, speaker, state, answered) = Default::default();
        Ok(Peer { name, process: party.process, key, life, left, socket, watch, speaker, state, answered })
    }

    /// Returns `true` if the exporter is gone.
    pub(super) fn is_gone(&self) -> bool {
        socket::is_hung_up(&self.socket)
    }

    /// Returns `true` if the exporter is gone and its process has ended, so that all processes can see it. Until then
    /// other processes may still report what it did. A process that ends closes its socket a moment earlier; one that
    /// goes on has dropped its device.
    pub(super) fn has_left(&self) -> bool {
        let goes_on = |life| self.process != std::process::id() && !socket::is_over(life);
        self.is_gone()
            && (!self.life.as_ref().is_some_and(goes_on) || self.left.get_or_init(Instant::now).elapsed() > PARTING)
    }

    /// Returns the speaker for its chains. An exporter says only once which device it is.
    pub(super) fn speaker(&self, context: &Arc<Context>, device: u128) -> Result<&Speaker> {
        if !lock(&self.state).end.is_device(device) {
            return Err(ShareError::answer("it says that it is another device than before"));
        }
        Ok(self.speaker.get_or_init(|| context.speaker(self.key, self.process, device)))
    }
}

fn no_answer() -> Error {
    let reason = "it does not answer in time (`Device::set_import_patience`); the ticket may be used up".into();
    ShareError::System { call: "wait for the exporter", reason }.into()
}

fn refused(wrong: Wrong) -> Error {
    match wrong {
        Wrong::Refused(why) => ShareError::Refused { what: TicketKind::Memory, why }.into(),
        Wrong::Answer(why) => ShareError::answer(why),
    }
}

/// The right to ask, one question at a time. A late reply is still awaited; until it comes, no other thread asks.
struct Asking<'p> {
    peer: &'p Arc<Peer>,
    room: Vec<u8>,
    until: Instant,
    is_late: bool,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let (peer, room) = (self.peer, std::mem::take(&mut self.room));
        if self.is_late {
            lock(&peer.state).end.is_late();
            let late = peer.socket.try_clone().map(|socket| Late { peer: Arc::clone(peer), socket, room });
            if late.is_ok_and(|late| peer.watch.add(late).is_ok()) {
                return;
            }
            // Nothing more will come from it, and the exporter notices.
            socket::hang_up(&peer.socket);
            return peer.end_question(Vec::new());
        }
        peer.end_question(room);
    }
}

/// Questions to the exporter.
impl Peer {
    fn begin_question(self: &Arc<Self>, until: Instant) -> Result<Asking<'_>> {
        let mut state = lock(&self.state);
        while !state.end.begin_question() {
            let rest = until.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                return Err(no_answer());
            }
            state = wait_timeout(&self.answered, state, rest);
        }
        let mut room = std::mem::take(&mut state.room);
        drop(state);
        if room.is_empty() {
            room = socket::room();
        }
        Ok(Asking { peer: self, room, until, is_late: false })
    }

    fn end_question(&self, room: Vec<u8>) {
        let mut state = lock(&self.state);
        state.end.end_question();
        state.room = room;
        drop(state);
        self.answered.notify_one();
    }

    /// Claims what a ticket for something other than memory stands for.
    pub(super) fn claim(self: &Arc<Self>, ticket: &Ticket, until: Instant) -> Result<(Reply, Vec<OwnedFd>)> {
        match self.begin_question(until)?.ask(&Claim::question(ticket))? {
            (Reply::Refused(why), _) => Err(ShareError::Refused { what: ticket.kind, why }.into()),
            answer => Ok(answer),
        }
    }

    /// Claims memory, with handles of all its chunks. Each chunk gets one more user.
    pub(super) fn claim_memory<'c>(
        self: &Arc<Self>,
        context: &'c Context,
        ticket: &Ticket,
        until: Instant,
    ) -> Result<Claimed<'c>> {
        let limits = Limits {
            granularity: context.properties.granularity,
            alignment: GRAIN,
            total_bytes: context.properties.total_bytes,
        };
        // From here on, a failure returns what was granted, after the question has ended.
        let mut claimed = Claimed { peer: Arc::clone(self), claim: Claim::default(), context };
        let mut asking = self.begin_question(until)?;
        let mut question = Claim::question(ticket);
        loop {
            let (reply, files) = asking.ask(&question)?;
            let answered = lock(&self.state).end.answered(&mut claimed.claim, reply, files.len(), limits);
            let mut next = answered.map_err(refused)?;
            if let Step::Import(parts) = next {
                let can_write = claimed.grant()?.can_write;
                for (part, file) in parts.iter().zip(files) {
                    let raw = match can_write {
                        true => context.driver.import(file, part.bytes)?,
                        false => context.driver.import_to_read(file, part.bytes)?,
                    };
                    lock(&self.state).end.imported(&mut claimed.claim, part, raw);
                }
                next = lock(&self.state).end.proceed(&mut claimed.claim, limits).map_err(refused)?;
            }
            match next {
                Step::Ask(request) => question = request,
                Step::Import(_) | Step::Done => break,
            }
        }
        drop(asking);
        // Some chunks may be gone.
        self.destroy_unused(context);
        Ok(claimed)
    }
}

impl Asking<'_> {
    /// Asks, and waits for the reply.
    fn ask(&mut self, request: &Request) -> Result<(Reply, Vec<OwnedFd>)> {
        let socket = &self.peer.socket;
        let waits = |what| socket::wait_until(socket, what, self.until).map_err(|_| no_answer());
        waits(Timeout::Send)?;
        // A refused connection has the reason ready to be received, although nothing can be sent to it any more.
        let sent = socket::send(socket, &request.to_bytes(), &[], true);
        if sent == Err(Errno::AGAIN) {
            return Err(no_answer());
        }
        if waits(Timeout::Recv).is_err() {
            self.is_late = true;
            return Err(no_answer());
        }
        match socket::receive(socket, &mut self.room, true) {
            Ok(Received::Packet(bytes, files)) => {
                let reply =
                    Reply::from_bytes(&self.room[..bytes]).map_err(|why| ShareError::answer(why.to_string()))?;
                Ok((reply, files))
            }
            Ok(Received::End | Received::Nothing) => Err(ShareError::ExporterGone.into()),
            Err(_) if sent.is_err() => Err(ShareError::ExporterGone.into()),
            Err(Errno::AGAIN) => {
                self.is_late = true;
                Err(no_answer())
            }
            Err(other) => Err(ShareError::system("receive from the exporter")(other)),
        }
    }
}

/// A reply that did not come in time.
#[derive(Debug)]
struct Late {
    peer: Arc<Peer>,
    socket: OwnedFd,
    room: Vec<u8>,
}

impl Entry for Late {
    fn file(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn ready(&mut self, _: Called<'_>) -> Next {
        let reply = match socket::receive(&self.socket, &mut self.room, false) {
            Ok(Received::Nothing) => return Next::Again(None),
            Ok(Received::Packet(bytes, _)) => Reply::from_bytes(&self.room[..bytes]).ok(),
            _ => None,
        };
        let mut state = lock(&self.peer.state);
        state.end.late_answer(reply);
        state.room = std::mem::take(&mut self.room);
        drop(state);
        self.peer.answered.notify_one();
        self.peer.send(false);
        Next::Done
    }
}

/// Memory that was claimed and is not mapped yet. Dropping it returns the memory.
pub(super) struct Claimed<'c> {
    peer: Arc<Peer>,
    claim: Claim,
    context: &'c Context,
}

impl Claimed<'_> {
    /// Returns the grant.
    pub(super) fn grant(&self) -> Result<&MemoryGrant> {
        self.claim.grant().ok_or_else(|| ShareError::answer("it is for something else"))
    }

    /// Returns its chunks, in order, with their handles.
    pub(super) fn handles(&self) -> Vec<(Part, RawChunk)> {
        lock(&self.peer.state).end.handles(&self.claim)
    }

    /// Ends the claim, because the memory is mapped: the mapping returns it.
    pub(super) fn take(mut self) {
        self.claim = Claim::default();
    }
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        let claim = std::mem::take(&mut self.claim);
        self.peer.tell(self.context, true, |end| end.give_up(claim));
    }
}

/// Messages without a reply, and the state of the importer's end.
impl Peer {
    /// Sends messages without a reply, or changes the counts of users. An exporter that reads has room for a message
    /// in a moment, so that the message is sent when this returns. For one that does not read, the message is sent
    /// later, in order: all the waiting together costs at most a second, plus a millisecond for each message that the
    /// exporter takes. For one that is gone, the message is lost. Without `waits`, this does not wait.
    pub(super) fn tell<R>(
        self: &Arc<Self>,
        context: &Context,
        waits: bool,
        say: impl FnOnce(&mut ImporterEnd<RawChunk>) -> R,
    ) -> R {
        let said = say(&mut lock(&self.state).end);
        self.destroy_unused(context);
        self.send(waits);
        said
    }

    /// Sends the pending messages, in order, as far as there is room. A caller that waits also sends what others
    /// left.
    fn send(self: &Arc<Self>, waits: bool) {
        let mut state = lock(&self.state);
        while let Some(packet) = state.end.unsent() {
            if socket::send(&self.socket, packet, &[], false) != Err(Errno::AGAIN) {
                state.end.sent();
            } else if waits && state.end.may_wait() {
                drop(state);
                let begin = Instant::now();
                socket::wait_for_room(&self.socket, ROOM_STEP);
                state = lock(&self.state);
                state.end.waited(begin.elapsed());
            } else {
                if !state.is_watched {
                    let rest = self.socket.try_clone().map(|socket| Rest { peer: Arc::clone(self), socket });
                    // If it is not watched, it is sent with the next message.
                    state.is_watched = rest.is_ok_and(|rest| self.watch.add(rest).is_ok());
                }
                return;
            }
        }
    }

    /// Destroys the handles that are not needed. Those that the driver refuses are tried again with the next ones.
    pub(super) fn destroy_unused(&self, context: &Context) {
        let mut unused = lock(&self.state).end.take_unused();
        unused.retain(|raw| context.driver.destroy(*raw).is_err());
        if !unused.is_empty() {
            lock(&self.state).end.refused(unused);
        }
    }

    /// Tells the exporter what the host has learned. Returns `true` if the host has yet to learn of uses of returned
    /// leases.
    pub(super) fn host_learned(self: &Arc<Self>) -> bool {
        let base = hosts::base();
        if lock(&self.state).end.host_knows(|point| base.covers(point)) {
            self.send(true);
        }
        lock(&self.state).end.has_unknown()
    }

    /// Returns the number of handles of chunks, including those that could not be destroyed.
    pub(super) fn chunk_count(&self) -> usize {
        lock(&self.state).end.chunk_count()
    }
}

/// The packets for which the exporter had no room.
#[derive(Debug)]
struct Rest {
    peer: Arc<Peer>,
    socket: OwnedFd,
}

impl Entry for Rest {
    fn file(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn is_to_send(&self) -> bool {
        true
    }

    fn ready(&mut self, _: Called<'_>) -> Next {
        let mut state = lock(&self.peer.state);
        while let Some(packet) = state.end.unsent() {
            if socket::send(&self.socket, packet, &[], false) == Err(Errno::AGAIN) {
                return Next::Again(None);
            }
            state.end.sent();
        }
        state.is_watched = false;
        Next::Done
    }
}
