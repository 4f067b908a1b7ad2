//! Argument values: numbers with units, and files.

use std::path::PathBuf;

use clap::builder::{PathBufValueParser, TypedValueParser};
use millpond_core::units::{GIB, KIB, MIB, TIB};

/// Returns a parser for a file to write. It refuses `-`, because the file cannot be standard output.
pub(super) fn file_to_write() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| match path.as_os_str() == "-" {
        true => Err("it is not a file that can be written here: name one (`./-` for one of that name)"),
        false => Ok(path),
    })
}

pub(super) fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=1e6).contains(&seconds) => Ok(seconds),
        _ => Err("give a number of seconds such as 10 or 0.5".to_owned()),
    }
}

pub(super) fn parse_bytes(text: &str) -> Result<u64, String> {
    if text == "max" {
        return Ok(u64::MAX);
    }
    parse_capacity(text).map_err(|reason| reason + ", or `max`")
}

pub(super) fn parse_capacity(text: &str) -> Result<u64, String> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => Some(1),
        "kib" | "k" => Some(KIB),
        "mib" | "m" => Some(MIB),
        "gib" | "g" => Some(GIB),
        "tib" | "t" => Some(TIB),
        _ => None,
    };
    let bytes = number.parse::<u64>().ok().zip(unit).and_then(|(number, unit)| number.checked_mul(unit));
    bytes.ok_or_else(|| "give a number of bytes such as 4096, 64MiB or 2GiB".to_owned())
}
