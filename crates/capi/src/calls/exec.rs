//! Instances of graphs, and their launches.
//!
//! After a launch, the memory that it leaves live is in `pointers` like any other buffer: it is used and freed by its
//! address.

use millpond::graph::{GraphExec, Instantiate};
use millpond::{Buffer, Stream};

use crate::status::{Failure, Result, guard, millpond_status, place};
use crate::tables::graph::{GRAPHS, millpond_graph_t};
use crate::tables::handle::Table;
use crate::tables::pointers::POINTERS;
use crate::tables::stream::{STREAMS, millpond_stream_t};
use millpond_driver::locks::lock;

/// Opaque handle.
pub enum millpond_graph_exec {}
/// An instance of a graph (CUDA: cudaGraphExec_t).
pub type millpond_graph_exec_t = *mut millpond_graph_exec;

/// For millpond_graph_instantiate: each launch first frees what earlier ones left unfreed (CUDA:
/// cudaGraphInstantiateFlagAutoFreeOnLaunch).
pub const MILLPOND_GRAPH_AUTO_FREE_ON_LAUNCH: u32 = 1;

pub(crate) static EXECS: Table<GraphExec> = Table::new("graph instance", 6);

/// Checks a graph and makes an instance of it (CUDA: cudaGraphInstantiate). If the graph's order is wrong, the text
/// names two nodes and the missing edge.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_graph_instantiate(
    exec: *mut millpond_graph_exec_t,
    graph: millpond_graph_t,
    flags: u32,
) -> millpond_status {
    guard("millpond_graph_instantiate", || {
        let exec = place(exec, "exec")?;
        if flags & !MILLPOND_GRAPH_AUTO_FREE_ON_LAUNCH != 0 {
            return Err(Failure::Value(format!("{flags:#x} has flags that mean nothing here")));
        }
        let entry = GRAPHS.find(graph)?;
        let entry = lock(&entry);
        let auto_free_on_launch = flags & MILLPOND_GRAPH_AUTO_FREE_ON_LAUNCH != 0;
        let made = entry.graph.instantiate(Instantiate::default().auto_free_on_launch(auto_free_on_launch))?;
        *exec = EXECS.insert(made)?;
        Ok(())
    })
}

/// Destroys an instance (CUDA: cudaGraphExecDestroy). Memory that its launches left live stays live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_graph_exec_destroy(exec: millpond_graph_exec_t) -> millpond_status {
    guard("millpond_graph_exec_destroy", || EXECS.remove(exec).map(drop))
}

/// Launches an instance, and returns the memory that the launch leaves live. This does not include memory that the
/// graph frees itself, nor memory that another thread's launch has freed since.
pub(crate) fn launch(exec: &GraphExec, stream: &Stream) -> Result<Vec<Buffer<u8>>> {
    Ok(exec.launch(stream)?.take_all())
}

/// Makes the memory that a launch left live available by its address. Until then, and if another thread's launch comes
/// between, the library's own tables have it.
fn publish(buffer: Buffer<u8>) {
    let memory = buffer.raw();
    POINTERS.insert(buffer);
    // The memory may have ended before it was here to be removed.
    drop(memory.filter(|memory| !memory.is_live()).map(|memory| POINTERS.take(&memory)));
}

/// Launches an instance at this point of the stream (CUDA: cudaGraphLaunch). Memory that it allocates and does not free
/// is live from here on, at the address of its alloc node. In a capture the launch becomes a child node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_graph_launch(
    exec: millpond_graph_exec_t,
    stream: millpond_stream_t,
) -> millpond_status {
    guard("millpond_graph_launch", || {
        let (exec, stream) = (EXECS.find(exec)?, STREAMS.find(stream)?);
        launch(&exec, &stream.stream)?.into_iter().for_each(publish);
        Ok(())
    })
}

/// Maps an instance's memory ahead of its launch on this stream (CUDA: cudaGraphUpload).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_graph_upload(
    exec: millpond_graph_exec_t,
    stream: millpond_stream_t,
) -> millpond_status {
    guard("millpond_graph_upload", || {
        let (exec, stream) = (EXECS.find(exec)?, STREAMS.find(stream)?);
        Ok(exec.upload(&stream.stream)?)
    })
}
