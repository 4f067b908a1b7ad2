//! Where calls stand in the program: numbers for return addresses, and what they mean.
//!
//! A return address is a number at once, found by a hash. What stands there (the function, the file, the line) is
//! looked up when somebody is to read it: for a trace at the first call from there, for a finding when there is one.

use std::ffi::{CStr, c_void};

use rustc_hash::FxHashMap;

/// What stands at a return address.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Spot {
    /// The source file, or the function and the module where that is not known.
    pub(crate) file: String,
    /// The line; 0 where it is not known.
    pub(crate) line: u32,
    /// The function, where the file is known.
    pub(crate) function: Option<String>,
}

#[derive(Debug)]
struct Site {
    pc: usize,
    spot: Option<Spot>,
}

/// The places of a process.
#[derive(Debug, Default)]
pub(crate) struct Places {
    numbers: FxHashMap<usize, u32>,
    sites: Vec<Site>,
}

impl Places {
    /// The number of a return address, counted from 0.
    #[inline]
    pub(crate) fn number(&mut self, pc: usize) -> u32 {
        match self.numbers.get(&pc) {
            Some(number) => *number,
            None => self.add(pc),
        }
    }

    #[cold]
    fn add(&mut self, pc: usize) -> u32 {
        let number = self.sites.len() as u32;
        self.sites.push(Site { pc, spot: None });
        self.numbers.insert(pc, number);
        number
    }

    /// What stands there.
    pub(crate) fn spot(&mut self, number: u32) -> Option<&Spot> {
        let site = self.sites.get_mut(number as usize)?;
        let pc = site.pc;
        Some(site.spot.get_or_insert_with(|| resolve(pc)))
    }

    /// The function that a line is in, where both were asked for.
    pub(crate) fn function(&self, file: &str, line: u32) -> Option<&str> {
        let spots = self.sites.iter().filter_map(|site| site.spot.as_ref());
        spots.filter(|spot| spot.line == line && spot.file == file).find_map(|spot| spot.function.as_deref())
    }
}

/// What stands before a return address: the call.
fn resolve(pc: usize) -> Spot {
    let call = pc.wrapping_sub(1);
    let mut spot = Spot::default();
    backtrace::resolve(std::ptr::with_exposed_provenance_mut(call), |symbol| {
        // The innermost of inlined functions comes first.
        if spot.file.is_empty()
            && let (Some(file), Some(line)) = (symbol.filename(), symbol.lineno())
        {
            spot.file = file.display().to_string();
            spot.line = line;
            spot.function = symbol.name().map(|name| name.to_string());
        }
    });
    if spot.file.is_empty() {
        spot.file = symbol_at(call);
    }
    spot
}

/// The function and the module at an address, as the loader knows them.
fn symbol_at(at: usize) -> String {
    // SAFETY: a structure of pointers and numbers, for which 0 is a value.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked for.
    if unsafe { libc::dladdr(std::ptr::with_exposed_provenance::<c_void>(at), &raw mut info) } == 0 {
        return format!("{at:#x}");
    }
    let text = |at: *const std::ffi::c_char| {
        // SAFETY: a string of the loader's, which lives as long as the module.
        (!at.is_null()).then(|| unsafe { CStr::from_ptr(at) }.to_string_lossy().into_owned())
    };
    let module = text(info.dli_fname).unwrap_or_default();
    let module = module.rsplit('/').next().unwrap_or_default();
    match text(info.dli_sname) {
        Some(name) => format!("{name}+{:#x} ({module})", at - info.dli_saddr.addr()),
        None => format!("{module}+{:#x}", at - info.dli_fbase.addr()),
    }
}
