//! Handles as values: equal if they name the same object, hashed by it, and printed on one line.
//!
//! The objects behind them are printed by their names, too, so that no value that holds a handle prints a device's
//! tables.

use std::fmt;
use std::hash::{Hash, Hasher};

use crate::api::device::Device;
use crate::graph::{Body, ExecShared, Graph, GraphExec};
use crate::pool::handle::Pool;
use crate::state::context::Context;
use crate::stream::buffer::{Buffer, View};
use crate::stream::event::{At, Event};
use crate::stream::external::ExternalEvent;
use crate::stream::handle::Stream;

/// Two handles are equal if they name the same object.
macro_rules! named {
    ($($handle:ident by $key:expr;)*) => {$(
        impl PartialEq for $handle {
            fn eq(&self, other: &Self) -> bool {
                let key = $key;
                key(self) == key(other)
            }
        }

        impl Eq for $handle {}

        impl Hash for $handle {
            fn hash<H: Hasher>(&self, state: &mut H) {
                let key = $key;
                key(self).hash(state);
            }
        }
    )*};
}

named! {
    Device by |it: &Device| it.context().number;
    Pool by |it: &Pool| (it.shared.context.number, it.shared.id);
    Stream by |it: &Stream| (it.shared.context.number, it.shared.id);
    Event by |it: &Event| match &it.at {
        At::Live { snapshot, context, .. } => (context.number, Some(snapshot.point()), None),
        At::Captured(at) => (at.device(), None, Some(std::ptr::from_ref(&**at))),
    };
    ExternalEvent by |it: &ExternalEvent| it.key().0;
    GraphExec by |it: &GraphExec| std::ptr::from_ref(&*it.shared);
}

macro_rules! shown {
    ($($handle:ty: |$it:ident, $f:ident| $show:expr;)*) => {$(
        impl fmt::Debug for $handle {
            fn fmt(&self, $f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let $it = self;
                $show
            }
        }
    )*};
}

shown! {
    Device: |it, f| write!(f, "Device({})", it.context().name());
    Pool: |it, f| write!(f, "Pool({})", it.shared.titled());
    Stream: |it, f| write!(f, "Stream({})", it.shared.titled());
    Event: |it, f| match &it.at {
        At::Live { snapshot, context, .. } => write!(f, "Event({} of {})", snapshot.point(), context.name()),
        At::Captured(_) => f.write_str("Event(of a capture)"),
    };
    Graph: |it, f| write!(f, "Graph({:?})", it.body);
    GraphExec: |it, f| match it.shared.present.try_read() {
        Some(exec) => write!(f, "GraphExec({exec:?})"),
        None => f.write_str("GraphExec(in use)"),
    };
    Context: |it, f| write!(f, "{}", it.name());
    Body: |it, f| write!(f, "{}, {} nodes", it.core.id(), it.core.len());
    ExecShared: |it, f| write!(f, "an instance of {:?}", it.body);
}

impl<T> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("address", &self.address()).field("len", &self.len()).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for View<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").field("span", &self.span).finish_non_exhaustive()
    }
}

/// Two views are equal if they name the same elements of the same lifetime of an allocation.
impl<T> PartialEq for View<T> {
    fn eq(&self, other: &Self) -> bool {
        self.named == other.named && self.span == other.span
    }
}

impl<T> Eq for View<T> {}

impl<T> Hash for View<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let named = self.named.map(|it| (it.device, it.id, it.generation));
        (named, self.span.offset(), self.len()).hash(state);
    }
}
