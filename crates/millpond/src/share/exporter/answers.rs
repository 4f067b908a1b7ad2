//! Answers to the questions of importers. Given by the exporter's thread, one importer after the other.
//!
//! What is lacking is found out before a ticket is used up. An answer that cannot be sent gives back what it lent.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use millpond_core::share::{ChunkName, FETCH_CHUNKS_MAX, LeaseId, PARTS_MAX, Refusal, Reply, Request, TicketKind};
use millpond_driver::locks::lock;
use millpond_driver::{Driver, is_unread};
use rustc_hash::FxHashMap;
use rustix::io::Errno;

use super::door::Door;
use super::{Exporter, Target};
use crate::share::connection::{Broken, Connection};
use crate::share::socket;
use crate::state::context::Context;

type Answer = std::result::Result<(Reply, Vec<OwnedFd>), Refusal>;

impl Exporter {
    /// Answers a question.
    pub(super) fn answer(
        &self,
        context: &Arc<Context>,
        door: &mut Door,
        connection: &Arc<Connection>,
        socket: &OwnedFd,
        question: Request,
    ) -> std::result::Result<(), Broken> {
        if is_unread(socket).unwrap_or(true) {
            // It asks on without reading: files that wait to be read count against all importers.
            return Err(Broken);
        }
        let answer = match question {
            Request::Claim { kind, nonce } => self.claim(context, door, connection, socket, (kind, nonce)),
            Request::Parts { lease, from } => connection.parts(lease).map(|parts| {
                (Reply::Parts(parts.iter().copied().skip(from as usize).take(PARTS_MAX).collect()), Vec::new())
            }),
            Request::Fetch(chunks) => fetch(context, connection, &chunks),
            _ => return Err(Broken),
        };
        let (reply, files) = answer.unwrap_or_else(|why| (Reply::Refused(why), Vec::new()));
        if let Reply::Refused(_) = &reply {
            self.counters.refused();
        }
        let borrowed: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        match socket::send(socket, &reply.to_bytes(), &borrowed, false) {
            Err(Errno::TOOMANYREFS | Errno::NOMEM) => {
                // Too many files of this user are on their way: that will pass.
                self.counters.refused();
                let full = Reply::Refused(Refusal::Full).to_bytes();
                socket::send(socket, &full, &[], false).map_err(|_| Broken)
            }
            sent => sent.map_err(|_| Broken),
        }
    }

    fn claim(
        &self,
        context: &Arc<Context>,
        door: &mut Door,
        connection: &Arc<Connection>,
        socket: &OwnedFd,
        (kind, nonce): (TicketKind, u128),
    ) -> Answer {
        connection.identify(socket)?;
        if !connection.has_room() {
            return Err(Refusal::Full);
        }
        let now = self.time(std::time::Instant::now());
        let target = lock(&self.desk).redeem(nonce, kind, now)?;
        let answer = match target {
            Target::Memory(offer) => {
                let id = LeaseId(self.next.fetch_add(1, Ordering::Relaxed));
                let (mut grant, lease) = offer.lend(context, self.number, connection, id)?;
                let host = connection.lend(context, lease).map_err(|_| Refusal::System)?;
                if let (Some(tracer), Some(host)) = (&context.tracer, host) {
                    tracer.lent(host, nonce, id);
                }
                grant.gone = connection.forget_gone(context);
                (Reply::Memory(grant), Vec::new())
            }
            Target::Event(announced) => {
                let (file, named) = announced.announce(context).map_err(|_| Refusal::System)?;
                let mut grant = announced.grant;
                if let Some((name, named)) = named {
                    match self.listen(&*named.line) {
                        Ok(number) => drop(door.lines.insert(number, (Arc::clone(connection), named))),
                        Err(_) => {
                            named.forget(context);
                            return Err(Refusal::Full);
                        }
                    }
                    connection.count_named(1);
                    grant.name = Some(name);
                }
                (Reply::Event(grant), vec![file])
            }
            Target::Pool(pool) => {
                let pool = pool.upgrade().ok_or(Refusal::Stale)?;
                pool.is_open.store(true, Ordering::Release);
                (Reply::Pool(pool.id.0), Vec::new())
            }
        };
        if !connection.has_claimed() {
            connection.claimed();
            door.welcome(connection);
        }
        Ok(answer)
    }
}

/// The files of chunks, where the importer may have them.
fn fetch(context: &Context, connection: &Connection, chunks: &[ChunkName]) -> Answer {
    debug_assert!(chunks.len() <= FETCH_CHUNKS_MAX, "the reader of requests refuses more");
    let leases = connection.all_parts();
    let mut lent = FxHashMap::<ChunkName, bool>::default();
    for (part, can_write) in
        leases.iter().flat_map(|(parts, can_write)| parts.iter().map(move |part| (part, can_write)))
    {
        *lent.entry(part.chunk).or_default() |= can_write;
    }
    let pools = context.pools();
    let mut files = Vec::with_capacity(chunks.len());
    for name in chunks {
        let can_write = lent.get(name).ok_or(Refusal::NotLent)?;
        let pool = pools.iter().find(|pool| pool.id.0 == name.pool).ok_or(Refusal::NotLent)?;
        let heap = pool.lock();
        let chunk = heap.chunk_of(name.serial).ok_or(Refusal::NotLent)?;
        let file = if *can_write { context.driver.export(chunk) } else { context.driver.export_to_read(chunk) };
        files.push(file.map_err(|_| Refusal::Full)?);
    }
    connection.fetched(chunks);
    Ok((Reply::Chunks(files.len() as u32), files))
}
