//! Trace files as events.

use flate2::read::GzDecoder;
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};

/// One event of a trace; allocations are numbered from 0 in the order of the file.
#[derive(Clone, Copy)]
pub(crate) enum Event {
    Alloc { id: usize, bytes: u64, stream: u32 },
    Free { id: usize, stream: u32 },
}

pub(crate) struct Trace {
    pub(crate) name: String,
    pub(crate) events: Vec<Event>,
    pub(crate) allocations: usize,
    pub(crate) streams: u32,
    /// The program's own time, if the header has it.
    pub(crate) seconds: Option<f64>,
}

impl Trace {
    pub(crate) fn read(path: &str) -> Result<Trace, String> {
        let name = path.rsplit('/').next().unwrap_or(path).split('.').next().unwrap_or(path).to_owned();
        let file = File::open(path).map_err(|error| error.to_string())?;
        let mut trace = Trace { name, events: Vec::new(), allocations: 0, streams: 1, seconds: None };
        let mut ids = HashMap::new();
        for (number, line) in BufReader::new(GzDecoder::new(file)).lines().enumerate() {
            let line = line.map_err(|error| error.to_string())?;
            match line.strip_prefix('{') {
                Some(header) => trace.seconds = seconds(header),
                None => trace.add(&line, &mut ids).ok_or_else(|| format!("line {}: {line}", number + 1))?,
            }
        }
        Ok(trace)
    }

    /// Returns the most bytes that are live at one time.
    pub(crate) fn peak(&self) -> u64 {
        let mut sizes = vec![0; self.allocations];
        let (mut live, mut peak) = (0, 0);
        for event in &self.events {
            match *event {
                Event::Alloc { id, bytes, .. } => {
                    sizes[id] = bytes;
                    live += bytes;
                    peak = peak.max(live);
                }
                Event::Free { id, .. } => live -= sizes[id],
            }
        }
        peak
    }

    /// `["a",7,512,0,10]` and `a 7 512` give the same words.
    fn add(&mut self, line: &str, ids: &mut HashMap<u64, usize>) -> Option<()> {
        let mut words = line.split([' ', ',', '[', ']', '"']).filter(|word| !word.is_empty());
        let kind = words.next()?;
        let mut numbers = words.map(|word| word.parse::<u64>().ok());
        let file_id = numbers.next()??;
        match kind {
            "a" => {
                let bytes = numbers.next()??;
                let stream = numbers.next().unwrap_or(Some(0))? as u32;
                let id = self.allocations;
                self.allocations += 1;
                ids.insert(file_id, id);
                self.streams = self.streams.max(stream + 1);
                self.events.push(Event::Alloc { id, bytes, stream });
            }
            "f" => {
                let stream = numbers.next().unwrap_or(Some(0))? as u32;
                self.streams = self.streams.max(stream + 1);
                if let Some(id) = ids.remove(&file_id) {
                    self.events.push(Event::Free { id, stream });
                }
            }
            _ => return None,
        }
        Some(())
    }
}

fn seconds(header: &str) -> Option<f64> {
    let rest = header.split("\"seconds\":").nth(1)?;
    rest.trim_start().split([',', '}', ' ']).next()?.parse().ok()
}
