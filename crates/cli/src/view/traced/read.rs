//! Files of operations: a trace piece by piece, a litmus program whole.

use std::io::Read;
use std::path::Path;

use millpond_core::check::Settings;
use millpond_core::trace::ops::{Reader, Reason};

use crate::recorded::{self, Place, Refusal};
use crate::source::{Kind, Opened};
use crate::view::ALLOCATIONS_MAX;
use crate::view::scene::Scene;

use super::{Builder, litmus_text, nothing};

/// How many bytes of a trace are read at a time.
const CHUNK: usize = 1 << 16;
/// The longest litmus program, in bytes.
const LITMUS_MAX: u64 = 1 << 20;

/// The scene of an operation trace or a litmus program, with what there is to note.
///
/// # Errors
/// Where it is damaged, or too long for a page.
pub(in crate::view) fn read(path: &Path, opened: Opened) -> Result<(Scene, Option<String>), Refusal> {
    match opened.kind() {
        Kind::Trace => read_trace(path, opened.unzipped()?),
        _ => Ok((read_litmus(path, opened.unzipped()?)?, None)),
    }
}

fn read_trace(path: &Path, mut source: impl Read) -> Result<(Scene, Option<String>), Refusal> {
    let unreadable = |error: std::io::Error| Refusal::from_read(Place::Whole, &error);
    let (mut reader, mut builder) = (Reader::new(), Builder::new(Settings::default()));
    let mut buffer = vec![0; CHUNK];
    let mut damage = loop {
        match reader.next_op() {
            Ok(Some(op)) => builder.step(&op, reader.names()),
            Ok(None) => match source.read(&mut buffer).map_err(unreadable)? {
                0 => break reader.end().err(),
                read => reader.feed(&buffer[..read]),
            },
            Err(damage) => break Some(damage),
        }
        if builder.scene.lives.len() > ALLOCATIONS_MAX {
            let reason = format!("more than {ALLOCATIONS_MAX} allocations, which is the most that a page shows");
            return Err(Refusal::new(Place::Whole, reason).help("trace a shorter run"));
        }
    };
    let is_cut = damage.take_if(|damage| damage.reason == Reason::Cut && builder.scene.steps > 0).is_some();
    if let Some(damage) = damage {
        let refusal = Refusal::new(Place::Byte(damage.offset), damage.to_string());
        return Err(refusal.help("copy the file, or trace the program, again"));
    }
    if builder.scene.steps == 0 {
        return Err(nothing());
    }
    let note = (is_cut || !reader.is_finished())
        .then(|| "the program was stopped while it was traced: what it had flushed is drawn".to_owned());
    let name = recorded::file_stem(path);
    let mut scene = builder.finish(name, reader.names(), reader.is_finished());
    scene.facts.extend(note.iter().map(|_| ("stopped".to_owned(), "the end is missing".to_owned())));
    Ok((scene, note))
}

/// The scene of a litmus program's text.
fn read_litmus(path: &Path, source: impl Read) -> Result<Scene, Refusal> {
    let mut bytes = Vec::new();
    source.take(LITMUS_MAX + 1).read_to_end(&mut bytes).map_err(|error| Refusal::from_read(Place::Whole, &error))?;
    let text = String::from_utf8(bytes).ok().filter(|text| text.len() as u64 <= LITMUS_MAX);
    let Some(text) = text else {
        return Err(
            Refusal::new(Place::Whole, "a litmus program is text of at most 1 MiB").help("docs/litmus.md has it")
        );
    };
    litmus_text(&recorded::file_stem(path), &text)
}
