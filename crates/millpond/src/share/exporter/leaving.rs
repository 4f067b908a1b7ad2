//! Importers that go: what they held comes back, and when.
//!
//! Knows connections and what they hold; no message.

use std::sync::Arc;

use millpond_core::share::ConnectionId;
use rustix::event::epoll;

use super::{Exporter, Server};
use crate::context::Context;
use crate::share::lend::Lease;
use crate::share::socket::{self, Received};

impl Exporter {
    /// An importer let go of a mark that it was told the name of, or is gone: then the mark stays until its process is
    /// over.
    pub(super) fn hear(&self, context: &Context, server: &mut Server, number: u64) {
        let Server { connections, room, .. } = server;
        let Some(named) = connections.values_mut().map(|it| &mut it.named).find(|named| named.contains_key(&number))
        else {
            return;
        };
        let Some(line) = named.get(&number).map(|named| Arc::clone(&named.line)) else { return };
        let heard = socket::receive(&*line, room, false);
        if let Ok(Received::Nothing) = heard {
            return;
        }
        let _ = epoll::delete(&self.epoll, &*line);
        if let (Ok(Received::Packet(..)), Some(ended)) = (&heard, named.get(&number)) {
            ended.forget(context);
            named.remove(&number);
        }
    }

    /// Nothing more is heard of an importer. What it has not given back comes back when its process is over.
    pub(super) fn leave(&self, context: &Context, server: &mut Server, number: u64, ended: &mut Vec<Lease>) {
        let Some(connection) = server.connections.get_mut(&number) else { return };
        let holds = server.desk.lent_to(ConnectionId(number)).next().is_some()
            || connection.returning.values().any(|returning| !returning.is_over)
            || !connection.named.is_empty();
        let life = connection.life.as_ref().filter(|_| holds);
        let data = epoll::EventData::new_u64(number);
        let waits = life.is_some_and(|life| epoll::add(&self.epoll, life, data, epoll::EventFlags::IN).is_ok());
        if !waits {
            return self.close(context, server, number, ended);
        }
        let _ = epoll::delete(&self.epoll, &connection.socket);
        socket::hang_up(&connection.socket);
        connection.is_leaving = true;
    }

    /// An importer is gone: all that it held is given back.
    pub(super) fn close(&self, context: &Context, server: &mut Server, number: u64, ended: &mut Vec<Lease>) {
        let Some(connection) = server.connections.remove(&number) else { return };
        let _ = epoll::delete(&self.epoll, &connection.socket);
        let lost = server.desk.disconnect(ConnectionId(number));
        if let (Some(tracer), Some(host)) = (&context.tracer, connection.host) {
            tracer.process_ended(host, connection.process);
        }
        for (_, named) in connection.named {
            let _ = epoll::delete(&self.epoll, &*named.line);
            named.forget(context);
        }
        lost.iter().for_each(Lease::lost);
        ended.extend(lost);
        for (_, mut returning) in connection.returning {
            returning.over();
            returning.lease.known(&returning.points);
            ended.push(returning.lease);
        }
        let others = |device: &u128| server.connections.values().any(|other| other.devices.contains(device));
        for device in connection.devices.iter().filter(|device| !others(device) && **device != self.number) {
            context.forget_abroad(*device);
        }
    }
}
