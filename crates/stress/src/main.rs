//! The command `millpond-stress`: see `--help`.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use millpond_stress::exhaust::exhaust;
use millpond_stress::finding::watch_panics;
use millpond_stress::op::Program;
use millpond_stress::parent::{self, Plan};
use millpond_stress::preempt;
use millpond_stress::program::{self, Count, Watched};
use millpond_stress::settings::{DeviceKind, SETTINGS, Setting, find};
use millpond_stress::sharing::importer;

const HELP: &str = "millpond-stress [--seconds N] [--seed S] [--device host|sim|cuda] [--only SETTING] [--findings N]
    Runs random programs until time is up or N findings (default 1) are made; each is made small and printed.
    Exits with 1 where there are any. On CUDA the library is that of the system, or what
    MILLPOND_STRESS_CUDA_LIBRARY names.
millpond-stress --list
    The settings.
millpond-stress try --setting NAME --kind KIND --seed S [--preempt MICROS] [--places A,B,..] [--log FILE]
    Runs one program again, or some of its operations, and writes its calls down. With --preempt its threads are
    stopped wherever they are, all the time, for up to so long: what few runs show, one of a hundred then does.
millpond-stress exhaust --ops N [--threads T]
    Runs every program of N operations on three streams, one pool and two sizes.";

/// Parses the options after the first word. Each has a value.
fn options(words: &[String]) -> Result<HashMap<&str, &str>, String> {
    let mut options = HashMap::new();
    for pair in words.chunks(2) {
        match pair {
            [name, value] if name.starts_with("--") => drop(options.insert(name.as_str(), value.as_str())),
            other => return Err(format!("{other:?} is not an option with a value\n{HELP}")),
        }
    }
    Ok(options)
}

/// Returns the number of an option.
fn number(options: &HashMap<&str, &str>, name: &str, usual: u64) -> Result<u64, String> {
    options.get(name).map_or(Ok(usual), |it| it.parse().map_err(|_| format!("{name}: `{it}` is not a number")))
}

fn setting(options: &HashMap<&str, &str>, name: &str) -> Result<Option<&'static Setting>, String> {
    let named = options.get(name);
    named.map(|it| find(it).ok_or_else(|| format!("there is no setting `{it}`; see --list"))).transpose()
}

fn kind(name: &str) -> Option<DeviceKind> {
    use DeviceKind::{Cuda, Host, Seeded, Sim, SimLate};
    [Host, Seeded, Sim, SimLate, Cuda].into_iter().find(|kind| format!("{kind:?}") == name)
}

/// Returns the program that the options name.
fn program(options: &HashMap<&str, &str>) -> Result<(Program, DeviceKind), String> {
    let setting = setting(options, "--setting")?.ok_or("which --setting?")?;
    let kind =
        options.get("--kind").map_or(Some(DeviceKind::Host), |name| kind(name)).ok_or("there is no such kind")?;
    Ok((Program::random(setting, number(options, "--seed", 0)?), kind))
}

/// Starts to stop threads at random, if requested.
fn preempt(options: &HashMap<&str, &str>, seed: u64) -> Result<(), String> {
    match number(options, "--preempt", 0)? {
        0 => Ok(()),
        longest => preempt::start(Duration::from_micros(longest), seed).map_err(|error| format!("--preempt: {error}")),
    }
}

/// Runs programs one after the other, for a parent that reads the output.
fn worker(options: &HashMap<&str, &str>) -> Result<(), String> {
    let (first, kind) = program(options)?;
    let time = Duration::from_millis(number(options, "--millis", 1000)?);
    let (begun, watched, mut total) = (Instant::now(), Watched::default(), Count::default());
    watched.watch(Duration::from_secs(20));
    preempt(options, first.seed)?;
    for seed in first.seed.. {
        println!("at {seed}");
        total.add(program::run(&Program::random(first.setting, seed), kind, None, &watched));
        if begun.elapsed() >= time {
            break;
        }
    }
    let Count { programs, operations, refusals, words, modelled } = total;
    println!("sum {programs} {operations} {refusals} {words} {modelled}");
    Ok(())
}

/// Runs one program, or a part of it.
fn once(options: &HashMap<&str, &str>) -> Result<(), String> {
    let (mut program, kind) = program(options)?;
    let list = match options.get("--keep") {
        Some(file) => Some(std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?),
        None => options.get("--places").map(|list| list.replace(',', " ")),
    };
    if let Some(list) = list {
        let places: Vec<usize> = list.split_whitespace().filter_map(|it| it.parse().ok()).collect();
        program = program.keep(&places);
    }
    let open = |file: &&str| {
        OpenOptions::new().create(true).write(true).truncate(true).open(file).map_err(|it| format!("{file}: {it}"))
    };
    let log = options.get("--log").map(open).transpose()?;
    let watched = Watched::default();
    watched.watch(Duration::from_secs(number(options, "--hang", 20)?));
    preempt(options, std::process::id().into())?;
    let count = program::run(&program, kind, log, &watched);
    println!("{count:?}");
    Ok(())
}

fn stress(words: &[String]) -> Result<usize, String> {
    let options = options(words)?;
    let kinds = match options.get("--device") {
        None => None,
        Some(&"host") => Some(vec![DeviceKind::Host, DeviceKind::Seeded]),
        Some(&"sim") => Some(vec![DeviceKind::Sim, DeviceKind::SimLate]),
        Some(&"cuda") => Some(vec![DeviceKind::Cuda]),
        Some(other) => return Err(format!("--device {other}: not one of host, sim, cuda")),
    };
    Ok(parent::run(&Plan {
        time: Duration::from_secs(number(&options, "--seconds", 60)?),
        seed: number(&options, "--seed", 1)?,
        kinds,
        only: setting(&options, "--only")?,
        findings: number(&options, "--findings", 1)? as usize,
    }))
}

fn every(options: &HashMap<&str, &str>) -> Result<usize, String> {
    let (ops, threads) = (number(options, "--ops", 4)?, number(options, "--threads", 1)?);
    let begun = Instant::now();
    Ok(match exhaust(ops as usize, threads as usize) {
        Ok(programs) => {
            println!("{programs} programs of {ops} operations, {:.1} s, all right", begun.elapsed().as_secs_f64());
            0
        }
        Err(found) => {
            println!("finding: {found}");
            1
        }
    })
}

fn list() {
    for setting in SETTINGS {
        println!("{:16} {} ({:?})", setting.name, setting.about, setting.kinds);
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match words.first().map(String::as_str) {
        Some("--help") => {
            println!("{HELP}");
            Ok(0)
        }
        Some("--list") => {
            list();
            Ok(0)
        }
        // Started by programs that share memory.
        Some("importer") => {
            watch_panics();
            find("sharing").into_iter().for_each(importer::obey);
            Ok(0)
        }
        Some("exhaust") => options(&words[1..]).and_then(|options| every(&options)),
        Some(what @ ("worker" | "try")) => {
            watch_panics();
            options(&words[1..])
                .and_then(|options| if what == "try" { once(&options) } else { worker(&options) })
                .map(|()| 0)
        }
        _ => stress(&words),
    };
    match done {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(1),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}
