//! The output of `millpond run --report`: the memory of the pools, and the time of allocations and frees.
//!
//! The figures of Millpond's pools and of CUDA's (`--driver-pool`) are printed in the same form, so that two runs can
//! be compared.

use std::collections::BTreeMap;
use std::io::{self, Write};

use millpond_core::units::Bytes;

use super::counted;

/// Sums over the processes of a program.
#[derive(Debug, Default)]
pub(super) struct Served {
    /// Allocations and their time in nanoseconds, frees and their time, and the time to open devices.
    counts: [u64; 5],
    /// By device (-1 if it is unknown): the number of pools, and the sums of their peaks of reserved and of used bytes.
    peaks: BTreeMap<i32, [u64; 3]>,
    /// Allocations left to CUDA's pools: in captures, from pools that are not served, others.
    left: [u64; 3],
    /// The number of processes that reported.
    processes: u64,
    /// The number of processes whose driver had shut down before it could be asked.
    unknown: u64,
    /// By device: the limit, and the most that all processes together used.
    limits: BTreeMap<u32, [u64; 2]>,
    /// The number of allocations that a limit refused.
    refused: u64,
}

impl Served {
    /// Adds a line of a process's report.
    pub(super) fn add(&mut self, fields: &[&str]) {
        let sum = |sums: &mut [u64], numbers: &[&str]| {
            for (sum, number) in sums.iter_mut().zip(numbers) {
                *sum += number.parse().unwrap_or(0);
            }
        };
        match fields {
            ["served", counts @ ..] => {
                self.processes += 1;
                sum(&mut self.counts, counts);
            }
            ["peaks", device, figures @ ..] => {
                sum(self.peaks.entry(device.parse().unwrap_or(-1)).or_default(), figures);
            }
            ["left", counts @ ..] => sum(&mut self.left, counts),
            ["peaks-unknown"] => self.unknown += 1,
            ["limit", device, figures @ ..] => {
                let known = self.limits.entry(device.parse().unwrap_or(0)).or_default();
                for (most, figure) in known.iter_mut().zip(figures) {
                    *most = figure.parse().unwrap_or(0).max(*most);
                }
            }
            ["refused", count] => self.refused += count.parse().unwrap_or(0),
            _ => {}
        }
    }

    /// Prints all figures.
    pub(super) fn show(&self, by_driver: bool, err: &mut dyn Write) -> io::Result<()> {
        let whose = if by_driver { "CUDA's pool" } else { "Millpond's pool" };
        let [allocations, alloc_time, frees, free_time, opening] = self.counts;
        let served = allocations.saturating_sub(self.left.iter().sum());
        if self.processes == 0 {
            let reason = "the program took no stream-ordered memory, or was stopped before it could report";
            return writeln!(err, "millpond: {whose}: no figures: {reason}");
        }
        writeln!(
            err,
            "millpond: {whose}: {} in {}, {} in {} of host time",
            counted(served, "allocation", "allocations"),
            time(alloc_time, allocations),
            counted(frees, "free", "frees"),
            time(free_time, frees),
        )?;
        if opening > 0 {
            writeln!(err, "millpond: {whose}: opened in {:.3} ms", opening as f64 / 1e6)?;
        }
        for (device, [pools, reserved, used]) in &self.peaks {
            let device = if *device < 0 { "pools that were made".to_owned() } else { format!("device {device}") };
            let sum = if *pools > 1 { format!(" (the sum of {pools} pools' peaks)") } else { String::new() };
            let (reserved, used) = (Bytes(*reserved), Bytes(*used));
            writeln!(err, "millpond: {whose}: {device}: {reserved} reserved and {used} used at most{sum}")?;
        }
        let reasons = ["in captures", "from pools that are not served", "that could not be served"];
        for (count, reason) in self.left.iter().zip(reasons).filter(|(count, _)| **count > 0) {
            writeln!(err, "millpond: {} {reason} came from CUDA", counted(*count, "allocation", "allocations"))?;
        }
        match self.unknown {
            0 => Ok(()),
            _ => writeln!(err, "millpond: what some pools had is not known: CUDA had ended when it was asked"),
        }
    }

    /// Prints the figures of limits.
    pub(super) fn show_limits(&self, err: &mut dyn Write) -> io::Result<()> {
        for (device, [limit, peak]) in &self.limits {
            let (limit, peak) = (Bytes(*limit), Bytes(*peak));
            writeln!(
                err,
                "millpond: limit: device {device}: {peak} of {limit} used at most, by all processes together"
            )?;
        }
        match self.refused {
            0 => Ok(()),
            refused => writeln!(err, "millpond: limit: {} refused", counted(refused, "allocation", "allocations")),
        }
    }
}

/// Formats a time, in total and for each of the calls.
fn time(nanoseconds: u64, calls: u64) -> String {
    let each = nanoseconds.checked_div(calls).unwrap_or(0);
    format!("{:.3} ms ({each} ns each)", nanoseconds as f64 / 1e6)
}
