//! `millpond devices`: lists the devices of this machine and what they lack.
//!
//! Queries the library and opens no device. A machine without a GPU is not an error: the status is always fine.

use std::fmt::Write as _;
use std::io::Write;

use anstyle::{AnsiColor, Style};
use millpond::device::Properties;
use millpond::units::Bytes;
use millpond_driver::cuda::survey::{Facts, survey};
use millpond_driver::{Driver, HostConfig, HostDriver};
use serde::Serialize;

use crate::args::Devices as Args;
use crate::{Status, Stop};

/// The devices of the machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Report {
    /// The host device, which needs no hardware.
    pub built_in: Vec<BuiltIn>,
    /// The CUDA library and devices, if there are any.
    pub cuda: Cuda,
}

/// A device that is always available.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct BuiltIn {
    /// Its name.
    pub name: String,
    /// Its default memory, in bytes.
    pub total_bytes: u64,
    /// The granularity of chunks, in bytes.
    pub granularity: u64,
    /// The unsupported features; empty if all are supported.
    pub missing: Vec<&'static str>,
}

/// The driver library and its devices.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Cuda {
    /// The file name under which the library was found.
    pub library: Option<String>,
    /// The CUDA version that the driver supports.
    pub version: Option<String>,
    /// The reason why there is no library or no device.
    pub missing: Option<String>,
    /// The visible devices.
    pub devices: Vec<CudaDevice>,
}

/// A CUDA device.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct CudaDevice {
    /// Its ordinal, for `Device::cuda`.
    pub ordinal: u32,
    /// Its name.
    pub name: String,
    /// Its memory in bytes.
    pub total_bytes: u64,
    /// Its compute capability.
    pub capability: String,
    /// The unsupported features; empty if all are supported.
    pub missing: Vec<&'static str>,
}

const WITHOUT_CUDA: &str = "without CUDA, `check FILE`, `view`, `replay` and `plan` work, and so does `Device::host` \
                            of the library; only `check -- PROGRAM`, `record` and `run` need it";

/// Runs the command.
///
/// # Errors
/// `out` cannot be written.
pub fn run(args: &Args, out: &mut dyn Write) -> Result<Status, Stop> {
    let report = Report::of_this_machine();
    match args.json {
        true => writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?,
        false => write!(out, "{}", report.text())?,
    }
    Ok(Status::Fine)
}

impl Report {
    /// Queries the machine.
    pub fn of_this_machine() -> Self {
        let host = HostDriver::new(HostConfig::default()).map(|host| host.properties());
        Self { built_in: host.into_iter().map(BuiltIn::new).collect(), cuda: Cuda::of_this_machine() }
    }

    /// Returns the report as text for a terminal.
    fn text(&self) -> String {
        let bold = Style::new().bold();
        let mut text = String::new();
        for device in &self.built_in {
            let (name, total) = (&device.name, Bytes(device.total_bytes));
            let without = without(&device.missing);
            let _ =
                writeln!(text, "{bold}{name}{bold:#}  {total} by default, threads as streams: needs no GPU{without}");
        }
        let cuda = &self.cuda;
        if let (Some(library), Some(version)) = (&cuda.library, &cuda.version) {
            let _ = writeln!(text, "{bold}cuda{bold:#}  {library}, CUDA {version}");
        }
        for device in &cuda.devices {
            let CudaDevice { ordinal, name, capability, .. } = device;
            let (total, without) = (Bytes(device.total_bytes), without(&device.missing));
            let _ = writeln!(text, "{bold}cuda {ordinal}{bold:#}  {name}, {total}, capability {capability}{without}");
        }
        if let Some(missing) = &cuda.missing {
            let yellow = Style::new().fg_color(Some(AnsiColor::Yellow.into()));
            // The line already names CUDA.
            let missing = missing.strip_prefix("open CUDA: ").unwrap_or(missing);
            let _ = writeln!(text, "{bold}cuda{bold:#}  {yellow}not here{yellow:#}: {missing}");
            let _ = writeln!(text, "  {bold}help{bold:#}: {WITHOUT_CUDA}");
        }
        text
    }
}

/// Returns the text that lists the features that a device lacks, for the end of its line.
fn without(missing: &[&str]) -> String {
    match missing {
        [] => String::new(),
        some => format!("; without {}", some.join(", without ")),
    }
}

impl BuiltIn {
    fn new(properties: Properties) -> Self {
        let Properties { name, total_bytes, granularity, runs_closures, has_memory, can_protect } = properties;
        let wanted = [
            (runs_closures, "closures as kernels"),
            (has_memory, "memory to look at"),
            (can_protect, "guarded pools (they need pages of 4 KiB)"),
        ];
        Self { name, total_bytes, granularity, missing: lacking(&wanted) }
    }
}

/// Returns the names of the features that are not available.
fn lacking(wanted: &[(bool, &'static str)]) -> Vec<&'static str> {
    wanted.iter().filter(|(is_there, _)| !is_there).map(|(_, what)| *what).collect()
}

impl Cuda {
    fn of_this_machine() -> Self {
        let survey = match survey() {
            Ok(survey) => survey,
            Err(error) => return Self { missing: Some(error.to_string()), ..Self::default() },
        };
        let (devices, missing) = match survey.devices {
            Ok(devices) if devices.is_empty() => (devices, Some("no device is visible".to_owned())),
            Ok(devices) => (devices, None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        Self {
            library: Some(survey.library),
            version: Some(format!("{}.{}", survey.version.0, survey.version.1)),
            missing,
            devices: devices.into_iter().map(CudaDevice::new).collect(),
        }
    }
}

impl CudaDevice {
    fn new(facts: Facts) -> Self {
        let wanted = [
            (facts.has_virtual_memory, "virtual memory calls: no pools at all"),
            (facts.has_file_descriptors, "memory as file descriptors: no sharing between processes"),
            (facts.has_ipc_events, "events between processes: importing one waits for it"),
        ];
        Self {
            ordinal: facts.ordinal,
            name: facts.name,
            total_bytes: facts.total_bytes,
            capability: format!("{}.{}", facts.capability.0, facts.capability.1),
            missing: lacking(&wanted),
        }
    }
}
