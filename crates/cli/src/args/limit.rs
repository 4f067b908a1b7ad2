//! The limit of device memory: `--limit`, and the variables of HAMi.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;

use super::values::parse_capacity;

/// Device numbers are below this.
const DEVICES_MAX: u32 = 64;

const HELP: &str =
    "give bytes such as 8GiB, a part of the memory such as 50%, or amounts by device such as 0:8GiB,1:50%";

/// HAMi's variable for all devices. With `_N` after it, it is that of device N.
const HAMI: &str = "CUDA_DEVICE_MEMORY_LIMIT";

/// The memory that a program may use on a device.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Amount {
    Bytes(u64),
    Percent(f64),
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Amount::Bytes(bytes) => write!(f, "{bytes}"),
            Amount::Percent(part) => write!(f, "{part}%"),
        }
    }
}

/// The memory that a program may use on each device.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Limits {
    /// For devices without an amount of their own.
    all: Option<Amount>,
    of: BTreeMap<u32, Amount>,
}

/// The form that the preloaded library reads.
impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.all.iter().map(|amount| format!("*={amount}"));
        let parts: Vec<_> = all.chain(self.of.iter().map(|(device, amount)| format!("{device}={amount}"))).collect();
        f.write_str(&parts.join(","))
    }
}

fn parse_amount(text: &str) -> Result<Amount, String> {
    if let Some(part) = text.strip_suffix('%') {
        let number = part.trim();
        let is_plain = number.bytes().all(|c| c.is_ascii_digit() || c == b'.');
        return match number.parse::<f64>() {
            Ok(part) if is_plain && part > 0.0 && part <= 100.0 => Ok(Amount::Percent(part)),
            _ => Err(format!("`{text}` is not a part above 0% and up to 100%")),
        };
    }
    match parse_capacity(text) {
        Ok(0) => Err(format!("`{text}` leaves no memory")),
        Ok(bytes) => Ok(Amount::Bytes(bytes)),
        Err(_) => Err(format!("`{text}` is not a number of bytes")),
    }
}

impl Limits {
    /// Reads the value of `--limit`.
    ///
    /// # Errors
    /// What is wrong, where, and what is right.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut limits = Limits::default();
        for part in text.split(',').map(str::trim) {
            limits.add(part).map_err(|reason| format!("{reason}: {HELP}"))?;
        }
        Ok(limits)
    }

    fn add(&mut self, part: &str) -> Result<(), String> {
        let Some((device, amount)) = part.split_once(':') else {
            return match self.all.replace(parse_amount(part)?) {
                Some(_) => Err(format!("`{part}` is a second amount for all devices")),
                None => Ok(()),
            };
        };
        let number = device.trim().parse().ok().filter(|device| *device < DEVICES_MAX);
        let number = number.ok_or_else(|| format!("`{device}` is not a device number below {DEVICES_MAX}"))?;
        match self.of.insert(number, parse_amount(amount.trim())?) {
            Some(_) => Err(format!("`{part}` is a second amount for device {number}")),
            None => Ok(()),
        }
    }

    /// Reads HAMi's variables among these: bytes, or a number with `k`, `m` or `g`; 0 is no limit. `None` if there is
    /// none.
    ///
    /// # Errors
    /// The variable that is wrong, and what is right.
    pub(crate) fn of_hami(variables: impl Iterator<Item = (OsString, OsString)>) -> Result<Option<Self>, String> {
        let mut limits = Limits::default();
        for (name, value) in variables {
            let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(HAMI)) else { continue };
            let device = match rest.strip_prefix('_').map(str::parse::<u32>) {
                None if rest.is_empty() => None,
                Some(Ok(device)) if device < DEVICES_MAX && rest == format!("_{device}") => Some(device),
                _ => continue,
            };
            let text = value.to_string_lossy();
            if text.is_empty() {
                continue;
            }
            let bytes = parse_capacity(&text).map_err(|_| {
                let help =
                    "give bytes, or a number with `k`, `m` or `g`, such as 1024m; --limit wins over this variable";
                format!("{HAMI}{rest}=`{}`: this is not a size\n  help: {help}", text.escape_debug())
            })?;
            match device {
                _ if bytes == 0 => {}
                None => limits.all = Some(Amount::Bytes(bytes)),
                Some(device) => drop(limits.of.insert(device, Amount::Bytes(bytes))),
            }
        }
        Ok(Some(limits).filter(|limits| *limits != Limits::default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<String, String> {
        Limits::parse(text).map(|limits| limits.to_string())
    }

    fn hami(variables: &[(&str, &str)]) -> Result<Option<String>, String> {
        let variables = variables.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
        Limits::of_hami(variables).map(|limits| limits.map(|limits| limits.to_string()))
    }

    #[test]
    fn amounts_are_for_all_devices_or_for_some() {
        assert_eq!(parsed("8GiB").unwrap(), "*=8589934592");
        assert_eq!(parsed("50%").unwrap(), "*=50%");
        assert_eq!(parsed("1:4k, 0:12.5%").unwrap(), "0=12.5%,1=4096");
        assert_eq!(parsed("8m,3:1m").unwrap(), "*=8388608,3=1048576");
    }

    #[test]
    fn wrong_amounts_say_what_is_wrong_and_what_is_right() {
        for (text, wrong) in [
            ("", "`` is not a number of bytes"),
            ("8GB", "`8GB` is not a number of bytes"),
            ("0", "`0` leaves no memory"),
            ("0%", "`0%` is not a part"),
            ("101%", "`101%` is not a part"),
            ("1e-300%", "`1e-300%` is not a part"),
            ("nan%", "`nan%` is not a part"),
            ("0:4g,x:4g", "`x` is not a device number"),
            ("64:4g", "`64` is not a device number"),
            ("0:4g,0:5g", "`0:5g` is a second amount for device 0"),
            ("4g,5g", "`5g` is a second amount for all devices"),
            ("99999999999t", "`99999999999t` is not a number of bytes"),
        ] {
            let said = parsed(text).unwrap_err();
            assert!(said.contains(wrong) && said.contains("such as 8GiB"), "{text}: {said}");
        }
    }

    #[test]
    fn hamis_variables_are_read() {
        let both = [("CUDA_DEVICE_MEMORY_LIMIT", "8g"), ("CUDA_DEVICE_MEMORY_LIMIT_1", "1024M"), ("PATH", "x")];
        assert_eq!(hami(&both), Ok(Some("*=8589934592,1=1073741824".to_owned())));
        assert_eq!(hami(&[("CUDA_DEVICE_MEMORY_LIMIT_0", "4096")]), Ok(Some("0=4096".to_owned())));
        assert_eq!(hami(&[("CUDA_DEVICE_MEMORY_LIMIT", "0"), ("CUDA_DEVICE_MEMORY_LIMIT_2", "")]), Ok(None));
        let others = ["CUDA_DEVICE_MEMORY_LIMITS", "CUDA_DEVICE_MEMORY_LIMIT_X", "CUDA_DEVICE_MEMORY_LIMIT_00"];
        assert_eq!(hami(&others.map(|name| (name, "x"))), Ok(None));
        let said = hami(&[("CUDA_DEVICE_MEMORY_LIMIT_0", "much")]).unwrap_err();
        assert!(said.contains("CUDA_DEVICE_MEMORY_LIMIT_0=`much`") && said.contains("help: give bytes"), "{said}");
        let said = hami(&[("CUDA_DEVICE_MEMORY_LIMIT", "1g\nerror: x")]).unwrap_err();
        assert!(said.starts_with(r"CUDA_DEVICE_MEMORY_LIMIT=`1g\nerror: x`: "), "{said}");
    }
}
