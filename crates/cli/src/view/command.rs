//! The command `millpond view`: chooses the file's program and the place of the page.
//!
//! It draws nothing.

use std::io::{self, IsTerminal, Write};

use millpond_core::units::Bytes;

use crate::args::{DeviceKind, View};
use crate::output::write_file;
use crate::recorded::{self, Place, Recorded, Refusal};
use crate::refusal::shown_path;
use crate::replay::Open;
use crate::source::{Kind, Opened};
use crate::{Status, Stop};

use super::scene::grouped;
use super::{ALLOCATIONS_MAX, Scene, browser, embed, served, traced};

/// Runs the command.
///
/// # Errors
/// Fails if an input is wrong, or if `out` or `err` cannot be written.
pub fn run(args: &View, open: Open<'_>, out: &mut dyn Write, err: &mut dyn Write) -> Result<Status, Stop> {
    if args.output.is_none() && !args.open && io::stdout().is_terminal() {
        return Err(Stop::bad_input("a page is not for a terminal\n  help: --open shows it, -o names a file for it"));
    }
    let refuse = |refusal: Refusal| refusal.in_file(&args.file);
    let opened = Opened::open(&args.file).map_err(refuse)?;
    let mut note = |note: Option<String>| match note {
        Some(note) => writeln!(err, "note: {}: {note}", shown_path(&args.file)),
        None => Ok(()),
    };
    let scene = match opened.kind() {
        Kind::Table => return Err(refuse(opened.refuse("view").expect("its kind is known")).into()),
        Kind::Trace | Kind::Litmus => {
            let (scene, said) = traced::read(&args.file, opened).map_err(refuse)?;
            note(said)?;
            if is_served(args) {
                let refusal = Refusal::new(Place::Whole, "no pool serves a litmus program or an operation trace")
                    .help("leave --gpu, --device and the settings of the pool out: they are for recordings");
                return Err(refuse(refusal).into());
            }
            scene
        }
        Kind::Recording | Kind::Other => {
            let (recorded, said) = read(args, opened).map_err(refuse)?;
            note(said)?;
            served::serve(args, open, &recorded)
                .map_err(|reason| Stop::Said(Status::Found, format!("{}: {reason}", shown_path(&args.file))))?
        }
    };
    write_page(args, &scene, out)
}

/// Returns `true` if the arguments say how to serve a recording.
fn is_served(args: &View) -> bool {
    args.gpu.is_some() || args.device != DeviceKind::Sim || !args.pool.is_default()
}

/// Returns the program of a file that is to be drawn, with a note if there were several.
fn read(args: &View, opened: Opened) -> Result<(Recorded, Option<String>), Refusal> {
    let mut found = opened.recordings(&recorded::input::shown(&recorded::file_stem(&args.file)))?;
    let known: Vec<String> = found.iter().filter_map(|recorded| recorded.gpu).map(|gpu| gpu.to_string()).collect();
    if let Some(gpu) = args.gpu {
        if known.is_empty() {
            return Err(Refusal::no_gpus());
        }
        found.retain(|recorded| recorded.gpu.is_none_or(|of| of == gpu));
    }
    let busiest = found.into_iter().max_by_key(|recorded| recorded.program.events.len());
    let Some(recorded) = busiest else {
        let refusal = Refusal::new(Place::Whole, "that GPU has no allocation in this snapshot");
        return Err(refusal.help(format!("those that have: {}", known.join(", "))));
    };
    let allocations = recorded.program.allocations as usize;
    if allocations > ALLOCATIONS_MAX {
        let reason = format!("{allocations} allocations; a page shows at most {ALLOCATIONS_MAX}");
        return Err(Refusal::new(Place::Whole, reason).help("cut the recording into shorter ones"));
    }
    let note = match (recorded.gpu, args.gpu) {
        (Some(gpu), None) if known.len() > 1 => {
            Some(format!("GPU {gpu} is drawn, of the GPUs {}; --gpu N chooses another", known.join(", ")))
        }
        _ => None,
    };
    Ok((recorded, note))
}

/// Writes the page to its place, and prints a line about it.
fn write_page(args: &View, scene: &Scene, out: &mut dyn Write) -> Result<Status, Stop> {
    let path = match args.output.as_deref().filter(|path| path.as_os_str() != "-") {
        Some(path) => path.to_owned(),
        None if args.open => browser::place(&args.file).map_err(|error| Stop::bad_input(error.to_string()))?,
        None => return Ok(embed::write_page(out, scene).map(|_| Status::Fine)?),
    };
    let bytes = write_file(&path, &[&args.file], |mut file| embed::write_page(&mut file, scene))?;
    let (shown, steps, unit) = (shown_path(&path), grouped(scene.steps), scene.unit);
    let many = if scene.steps == 1 { "" } else { "s" };
    let next = if args.open { "" } else { "; open it in a browser" };
    writeln!(out, "{shown}: {steps} {unit}{many} drawn, {} of page{next}", Bytes(bytes))?;
    if args.open {
        browser::open(&path).map_err(|why| Stop::bad_input(format!("{shown}: {why}")))?;
    }
    Ok(Status::Fine)
}
