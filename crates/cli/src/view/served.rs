//! A scene from a recorded program that a cold pool served once. The addresses are those of the pool.

use millpond_core::units::Bytes;

use crate::args::View;
use crate::recorded::{Event, History, Recorded};
use crate::replay::{Open, ServeError, Server, Setup};

use super::scene::{Life, Scene, grouped};

/// Serves the program and records the result.
pub(super) fn serve(args: &View, open: Open<'_>, recorded: &Recorded) -> Result<Scene, String> {
    let program = &recorded.program;
    let mut server = Setup::new(args.device, &args.pool, program).open(open)?;
    let mut lives: Vec<Life> = Vec::with_capacity(program.allocations as usize);
    let mut reserved = Vec::new();
    for (step, event) in program.events.iter().enumerate() {
        let served = serve_event(&mut *server, &mut lives, step as u64, event);
        served.map_err(|error| format!("event {step} was not served: {error}"))?;
        let bytes = server.reserved_bytes();
        if reserved.last().map_or(0, |&(_, before)| before) != bytes {
            reserved.push((step as u64, bytes));
        }
    }
    for left in &program.leftovers {
        server.free(left.id, left.stream).map_err(|error| format!("the end was not served: {error}"))?;
    }
    let peak_reserved = reserved.iter().map(|&(_, bytes)| bytes).max().unwrap_or(0);
    let fact = |key: &str, value: String| (key.to_owned(), value);
    let ratio = peak_reserved as f64 / program.peak_bytes.max(1) as f64;
    let mut facts = vec![
        fact("events", grouped(program.events.len() as u64)),
        fact("streams", program.streams.to_string()),
        fact("most live", Bytes(program.peak_bytes).to_string()),
        fact("most reserved", format!("{} ({ratio:.3} times)", Bytes(peak_reserved))),
    ];
    if let Some(bytes) = recorded.recorded_reserved_bytes {
        facts.push(fact("recorded run reserved", Bytes(bytes).to_string()));
    }
    let mut scene = Scene {
        name: program.name.clone(),
        unit: "event",
        steps: program.events.len() as u64,
        streams: (0..program.streams).map(|stream| format!("stream {stream}")).collect(),
        strings: vec![String::new()],
        lives,
        placed: true,
        reserved,
        facts,
        ..Scene::default()
    };
    if let Some(history) = &recorded.history {
        add_history(&mut scene, &program.events, history);
    }
    Ok(scene)
}

/// Adds a snapshot's history: frames, the reserved bytes of its own allocator, earlier blocks, times, annotations and
/// pools.
fn add_history(scene: &mut Scene, events: &[Event], history: &History) {
    scene.frames.clone_from(&history.frames);
    scene.stacks.clone_from(&history.stacks);
    scene.recorded.clone_from(&history.reserved);
    // Each frame is also one of the page's texts.
    scene.strings.extend(history.frames.iter().cloned());
    let site = |stack: u32| history.site(stack).map_or(0, |frame| frame + 1);
    for (event, &stack) in events.iter().zip(&history.events) {
        match *event {
            Event::Alloc { id, .. } => {
                scene.life_stacks.push(stack);
                scene.lives[id as usize].site = site(stack);
            }
            Event::Free { id, .. } => scene.lives[id as usize].free_site = site(stack),
        }
    }
    let around = &history.around;
    scene.times.clone_from(&around.times);
    scene.pools.clone_from(&around.pools);
    scene.spans.clone_from(&around.annotations);
    let allocated = events.iter().zip(&around.event_pools).filter(|(event, _)| matches!(event, Event::Alloc { .. }));
    scene.life_pools = allocated.map(|(_, &pool)| pool).collect();
    if let Some(&last) = around.times.last() {
        scene.facts.push(("time".to_owned(), format!("{:.3} s", last as f64 / 1e6)));
    }
    if history.earlier_blocks > 0 {
        let (blocks, bytes) = (history.earlier_blocks, Bytes(history.earlier_bytes));
        let shown = format!("{} {}, {bytes}", grouped(blocks), if blocks == 1 { "block" } else { "blocks" });
        scene.facts.push(("from before the history".to_owned(), shown));
    }
}

fn serve_event(server: &mut dyn Server, lives: &mut Vec<Life>, step: u64, event: &Event) -> Result<(), ServeError> {
    match *event {
        Event::Alloc { id, bytes, stream } => {
            server.alloc(id, bytes, stream)?;
            let address = server.address(id);
            lives.push(Life { born: step, bytes, stream, free_stream: stream, address, ..Life::default() });
        }
        Event::Free { id, stream } => {
            server.free(id, stream)?;
            let life = &mut lives[id as usize];
            (life.freed, life.free_stream) = (Some(step), stream);
        }
    }
    Ok(())
}
