//! Reads files of operations: a trace piece by piece, a litmus program as a whole.

use std::io::Read;
use std::path::Path;

use millpond_core::check::Settings;
use millpond_core::op::Ops;

use crate::operation_trace::Trace;
use crate::recorded::{self, Place, Refusal};
use crate::source::{self, Kind, Opened};
use crate::view::ALLOCATIONS_MAX;
use crate::view::scene::Scene;

use super::{Builder, litmus_text};

/// Makes the scene of an operation trace or a litmus program, with a note if there is one.
///
/// # Errors
/// The file is damaged, or too long for a page.
pub(in crate::view) fn read(path: &Path, opened: Opened) -> Result<(Scene, Option<String>), Refusal> {
    match opened.kind() {
        Kind::Trace => read_trace(path, opened.unzipped()),
        _ => Ok((read_litmus(path, opened.unzipped())?, None)),
    }
}

fn read_trace(path: &Path, source: impl Read) -> Result<(Scene, Option<String>), Refusal> {
    let (mut trace, mut builder) = (Trace::new(source), Builder::new(Settings::RECORDED));
    while let Some(op) = trace.next_op()? {
        builder.step(&op, trace.names());
        if builder.scene.lives.len() > ALLOCATIONS_MAX {
            let reason = format!("more than {ALLOCATIONS_MAX} allocations, which is the most that a page shows");
            return Err(Refusal::new(Place::Whole, reason).help("trace a shorter run"));
        }
    }
    if builder.scene.steps == 0 {
        return Err(trace.cut().unwrap_or_else(|| Refusal::no_operation("show")));
    }
    let note = (!trace.is_whole())
        .then(|| "the program was stopped while it was traced: what it had flushed is drawn".to_owned());
    let mut scene = builder.finish(recorded::file_stem(path), trace.names(), trace.is_whole());
    scene.facts.extend(note.iter().map(|_| ("stopped".to_owned(), "the end is missing".to_owned())));
    Ok((scene, note))
}

/// Makes the scene of a litmus program's text.
fn read_litmus(path: &Path, source: impl Read) -> Result<Scene, Refusal> {
    let text = source::text(source)?;
    litmus_text(&recorded::file_stem(path), &text)
}
