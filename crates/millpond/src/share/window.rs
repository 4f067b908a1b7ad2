//! Addresses at which an exporter's chunks are mapped. Knows peers and the shell.

use std::sync::Arc;

use millpond_core::units::Range;
use millpond_driver::Driver;

use super::peer::{Claimed, Handle, Peer};
use crate::names::error::Result;
use crate::pool::shell;
use crate::state::context::Context;

/// Addresses with an exporter's chunks mapped there.
#[derive(Debug)]
pub(super) struct Window {
    peer: Arc<Peer>,
    pub(super) range: Range,
    mapped: Vec<(u64, u64, Handle)>,
}

impl Window {
    /// Maps what was claimed. Where the driver refuses, nothing is left mapped, but for what it refuses to take back:
    /// that is tried again later.
    pub(super) fn open(context: &Context, peer: &Arc<Peer>, claimed: &Claimed<'_>) -> Result<Window> {
        let bytes = claimed.grant.parts.iter().map(|part| part.bytes).sum();
        let start = context.driver.reserve(bytes)?;
        let mut window = Window { peer: Arc::clone(peer), range: Range::new(start, bytes), mapped: Vec::new() };
        let mut at = start;
        for (part, raw) in &claimed.held {
            if let Err(error) = shell::map_import(context, *raw, at, part.bytes) {
                // Both the window and what was claimed give the chunks back that are mapped.
                window.mapped.iter().for_each(|(_, _, name)| peer.use_again(*name));
                context.share().returns.close(context, window);
                return Err(error.into());
            }
            window.mapped.push((at, part.bytes, (part.chunk, claimed.grant.can_write)));
            at += part.bytes;
        }
        Ok(window)
    }

    /// Takes all away. What the driver refuses can be tried again.
    pub(super) fn close(&mut self, context: &Context) -> millpond_driver::Result<()> {
        while let Some((at, bytes, name)) = self.mapped.last().copied() {
            shell::unmap_import(context, at, bytes)?;
            self.mapped.pop();
            self.peer.unuse([name]);
        }
        if self.range.bytes > 0 {
            shell::unreserve_import(context, self.range)?;
            self.range.bytes = 0;
        }
        self.peer.drop_unused(context);
        Ok(())
    }
}
