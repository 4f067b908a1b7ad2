//! An importer: a process of its own that does what a program tells it, line by line.
//!
//! It checks no order and does not know the program, which knows whether an answer is right. When it resets, everything
//! that it has must be returned and its device must be gone. It ends when its parent has ended.

use std::collections::HashMap;
use std::io::Write;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millpond::share::Ticket;
use millpond::{Buffer, Device, Error, Pool, PoolConfig, Result, Stream};

use crate::bytes::{Content, Of, pause};
use crate::device::{Dev, check_gone, open};
use crate::finding::{finding, lock};
use crate::import::import;
use crate::settings::{DeviceKind, Setting};

/// The number of streams of an importer.
pub(crate) const STREAMS: usize = 2;
/// The longest time that it may take to end after its parent.
const PATIENCE: Duration = Duration::from_secs(15);

/// The objects of an importer.
struct State {
    dev: Dev,
    device: Device,
    pool: Pool,
    streams: Vec<Stream>,
    bufs: HashMap<u64, Buffer<u8>>,
}

/// Obeys commands until the parent has ended.
pub fn obey(setting: &Setting) {
    let lines = listen();
    let mut state = State::new(setting);
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        let answer = match words[..] {
            ["reset"] => {
                state.end();
                state = State::new(setting);
                "ok".to_owned()
            }
            _ => state.act(&words).unwrap_or_else(|error| {
                let kind = if matches!(error, Error::Violation(_)) { "refused" } else { "error" };
                format!("{kind}: {error}").replace('\n', " | ")
            }),
        };
        let mut out = std::io::stdout().lock();
        if writeln!(out, "{answer}").and_then(|()| out.flush()).is_err() {
            break;
        }
    }
    // Its commands are done. Importers of its memory may hold that longer than its device, so this is not checked.
    let _ = state.device.synchronize();
    drop(state);
}

/// Receives the commands. Soon after they end, the process ends, whatever it is doing.
fn listen() -> Receiver<String> {
    let (tell, lines) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(std::io::Result::ok) {
            if tell.send(line).is_err() {
                return;
            }
        }
        drop(tell);
        std::thread::sleep(PATIENCE);
        finding("an importer does not end when its parent is gone");
    });
    lines
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| finding(&format!("an importer got `{text}` for a number")))
}

impl State {
    fn new(setting: &Setting) -> Self {
        let dev = open(setting, DeviceKind::Host, 0);
        let made = || {
            let device = lock_device(&dev).clone().expect("just opened");
            let pool = device.pool(PoolConfig::default().shareable(true))?;
            let streams = (0..STREAMS).map(|_| device.non_blocking_stream()).collect::<Result<Vec<_>>>()?;
            Ok((device, pool, streams))
        };
        let made: Result<_> = made();
        let (device, pool, streams) = made.unwrap_or_else(|error| finding(&format!("an importer: {error}")));
        Self { dev, device, pool, streams, bufs: HashMap::new() }
    }

    /// Drops everything and checks that nothing is left.
    fn end(self) {
        let Self { dev, device, pool, streams, bufs } = self;
        drop((bufs, pool, streams));
        if let Err(error) = device.synchronize() {
            finding(&format!("an importer's device: {error}"));
        }
        drop((device, lock_device(&dev).take()));
        check_gone("an importer's device", &dev, true, true);
    }

    fn act(&mut self, words: &[&str]) -> Result<String> {
        let ok = || Ok("ok".to_owned());
        let stream = |text: &str| &self.streams[number(text) as usize % STREAMS];
        let buf = |text: &str| {
            let buf = self.bufs.get(&number(text));
            buf.unwrap_or_else(|| finding(&format!("an importer got {words:?} and has no {text}")))
        };
        match *words {
            ["import", name, ticket] => {
                let buffer = import(&self.device, &ticket.parse::<Ticket>()?)?;
                self.bufs.insert(number(name), buffer);
                ok()
            }
            ["check", on, name, content] => check(stream(on), buf(name), content),
            ["fill", on, name, content, micros] => {
                fill(stream(on), buf(name), Content::of_text(content), number(micros))?;
                ok()
            }
            ["put", on, name, content] => {
                let buffer = buf(name);
                stream(on).copy_from_host(buffer.write(), &Content::of_text(content).bytes(0, buffer.len() / 8))?;
                ok()
            }
            ["free", on, name] => {
                let on = stream(on).clone();
                let Some(buffer) = self.bufs.remove(&number(name)) else { return Ok("error: it has none".into()) };
                on.free(buffer).map_err(|refused| {
                    self.bufs.insert(number(name), refused.buffer);
                    refused.error
                })?;
                ok()
            }
            ["drop", name] => {
                self.bufs.remove(&number(name));
                ok()
            }
            ["wait", on, ticket] => {
                stream(on).wait(&self.device.import_event(&ticket.parse::<Ticket>()?)?)?;
                ok()
            }
            ["order", on, other] => {
                stream(on).wait(&stream(other).record()?)?;
                ok()
            }
            ["record", on] => Ok(format!("ok {}", stream(on).record()?.export()?)),
            ["sync", on] => {
                stream(on).synchronize()?;
                ok()
            }
            ["alloc", on, name, len] => {
                let buffer = stream(on).alloc(&self.pool, number(len) as usize * 8)?;
                self.bufs.insert(number(name), buffer);
                ok()
            }
            ["export", name] => Ok(format!("ok {}", buf(name).export()?)),
            _ => finding(&format!("an importer got {words:?}")),
        }
    }
}

fn fill(stream: &Stream, buffer: &Buffer<u8>, content: Content, micros: u64) -> Result<()> {
    stream.launch(buffer.write(), move |x: &mut [u8]| {
        pause(micros);
        content.fill(x, Of::whole(x));
    })
}

fn lock_device(dev: &Dev) -> std::sync::RwLockWriteGuard<'_, Option<Device>> {
    dev.device.write().unwrap_or_else(|it| it.into_inner())
}

/// Checks the content with a kernel and with a copy.
fn check(stream: &Stream, buffer: &Buffer<u8>, content: &str) -> Result<String> {
    let content = Content::of_text(content);
    let seen = Arc::new(Mutex::new(None));
    let see = Arc::clone(&seen);
    stream.launch(buffer.read(), move |x: &[u8]| *lock(&see) = Some(content.wrong(x, Of::whole(x))))?;
    let bytes = stream.copy_to_host(buffer.read())?;
    let by_kernel = lock(&seen).take();
    Ok(match (by_kernel, content.wrong(&bytes, Of::whole(&bytes))) {
        (Some(None), None) => "right".into(),
        (None, _) => "wrong: the copy came back before the kernel before it had run".into(),
        (Some(Some(wrong)), _) => format!("wrong: a kernel sees {wrong}"),
        (_, Some(wrong)) => format!("wrong: the host sees {wrong}"),
    })
}
