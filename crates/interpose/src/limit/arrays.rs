//! The sizes of arrays, estimated from their descriptors: the driver's padding is not known.

use std::ffi::c_uint;

/// `CUDA_ARRAY_DESCRIPTOR`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Flat {
    width: usize,
    height: usize,
    format: c_uint,
    channels: c_uint,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Deep {
    width: usize,
    height: usize,
    depth: usize,
    format: c_uint,
    channels: c_uint,
    flags: c_uint,
}

const _: () = assert!(size_of::<Flat>() == 24 && size_of::<Deep>() == 40);

/// `CUDA_ARRAY3D_LAYERED`, `CUDA_ARRAY3D_CUBEMAP`: the depth counts layers.
const LAYERS: c_uint = 0x01 | 0x04;
/// `CUDA_ARRAY3D_SPARSE`, `CUDA_ARRAY3D_DEFERRED_MAPPING`: memory is mapped into the array later.
const WITHOUT_MEMORY: c_uint = 0x40 | 0x80;

/// Returns the bytes of one channel (`CUarray_format`).
fn bytes_of(format: c_uint) -> u64 {
    match format {
        // CU_AD_FORMAT_UNSIGNED_INT8, CU_AD_FORMAT_SIGNED_INT8
        0x01 | 0x08 => 1,
        // CU_AD_FORMAT_UNSIGNED_INT16, CU_AD_FORMAT_SIGNED_INT16, CU_AD_FORMAT_HALF
        0x02 | 0x09 | 0x10 => 2,
        _ => 4,
    }
}

impl Flat {
    /// Returns the bytes of an array.
    pub(crate) fn bytes(self) -> u64 {
        let Flat { width, height, format, channels } = self;
        Deep { width, height, depth: 0, format, channels, flags: 0 }.bytes(1)
    }
}

impl Deep {
    /// Returns the bytes of an array with this many levels, of which each has half the size of the one before.
    pub(crate) fn bytes(self, levels: c_uint) -> u64 {
        if self.flags & WITHOUT_MEMORY != 0 {
            return 0;
        }
        let element = bytes_of(self.format).saturating_mul(u64::from(self.channels));
        let halved = |size: usize, level: u32| (size as u64 >> level).max(1);
        let level = |level: u32| {
            let depth = halved(self.depth, if self.flags & LAYERS != 0 { 0 } else { level });
            let sizes = [halved(self.width, level), halved(self.height, level), depth];
            sizes.into_iter().fold(element, u64::saturating_mul)
        };
        (0..levels.clamp(1, 63)).map(level).fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_all_levels() {
        let flat = Flat { width: 100, height: 0, format: 0x10, channels: 4 };
        assert_eq!(flat.bytes(), 800);
        let deep = Deep { width: 8, height: 8, depth: 4, format: 0x20, channels: 1, flags: 0 };
        assert_eq!((deep.bytes(1), deep.bytes(3)), (1024, 1024 + 128 + 16));
        assert_eq!(Deep { flags: 0x01, ..deep }.bytes(2), 1024 + 256);
        assert_eq!((Deep { flags: 0x40, ..deep }.bytes(1), Deep { width: usize::MAX, ..deep }.bytes(1)), (0, u64::MAX));
    }
}
