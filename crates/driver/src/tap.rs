//! Drivers that wrap drivers: they see every call before the device does.
//!
//! A tap sees a call's kind and size, may refuse it, and changes nothing else. [`Counting`] and [`Failing`] are the two
//! taps. The forwarding code is generated from the contract's own line for each call, so that none can be left out.

use std::fmt;

use crate::process::refuse_forked;
use crate::{CallCounts, CallKind, Counters, DriverError, Failures, Result};

/// An observer of calls.
pub trait Tap: Send + Sync + fmt::Debug {
    /// Called before each call. An error is returned instead of the device's result. `bytes` is the call's size, or 0.
    fn before(&self, kind: CallKind, bytes: u64) -> Result<()>;
}

impl Tap for Counters {
    #[inline]
    fn before(&self, kind: CallKind, _bytes: u64) -> Result<()> {
        self.count(kind);
        // A forked process has the parent's handles, but none of its threads.
        refuse_forked()
    }
}

impl Tap for Failures {
    #[inline]
    fn before(&self, kind: CallKind, bytes: u64) -> Result<()> {
        self.check(kind, bytes)
    }
}

/// A driver with a tap in front of it.
#[derive(Debug)]
pub struct Tapped<D, T> {
    pub(crate) device: D,
    pub(crate) tap: T,
}

/// A driver whose calls are counted by kind, failed ones included.
pub type Counting<D> = Tapped<D, Counters>;

/// A driver whose calls fail on demand, before they reach the device.
pub type Failing<D> = Tapped<D, Failures>;

impl<D, T: Default> Tapped<D, T> {
    /// Wraps a device with the tap.
    pub fn new(device: D) -> Self {
        Self { device, tap: T::default() }
    }

    /// Returns the wrapped device.
    pub fn device(&self) -> &D {
        &self.device
    }
}

impl<D> Counting<D> {
    /// Returns the counts so far.
    pub fn counts(&self) -> CallCounts {
        self.tap.counts()
    }
}

impl<D> Failing<D> {
    /// Makes the `n`-th call from now on fail, whatever its kind; 0 is the next. Only calls that can fail count.
    pub fn fail_at(&self, n: u64) {
        self.tap.fail_at(n);
    }

    /// Makes the `n`-th call of a kind from now on fail; 0 is the next.
    pub fn fail_at_kind(&self, kind: CallKind, n: u64) {
        self.tap.fail_at_kind(kind, n);
    }

    /// Makes the next call of a kind fail with this error.
    pub fn fail_next(&self, kind: CallKind, error: DriverError) {
        self.tap.fail_next(kind, error);
    }

    /// Makes every call of a kind fail with this error until [`Self::disarm`].
    pub fn fail_every(&self, kind: CallKind, error: DriverError) {
        self.tap.fail_every(kind, error);
    }

    /// Removes every request.
    pub fn disarm(&self) {
        self.tap.disarm();
    }

    /// Returns the kinds of the calls that were made to fail so far, in order.
    pub fn struck(&self) -> Vec<CallKind> {
        self.tap.struck()
    }
}

/// Generates the trait of the calls, and the drivers that forward each of them: [`Tapped`], and a shared device, so
/// that layers can wrap one (`Counting<Arc<dyn Driver>>`).
///
/// A call is a function of the trait. The brackets before it contain the kind that a tap sees, and the argument that is
/// its size; a call without brackets is not seen. After it is the behaviour of a device that does not have the call:
/// the reason of the refusal (`errors::without`), or a body.
macro_rules! contract {
    (
        $(#[$about:meta])* pub unsafe trait $Driver:ident: ($($bounds:tt)+);
        $(
            $(#[$doc:meta])* $([$($seen:tt)*])? $($fn:ident)+(&$self:ident $(, $arg:ident: $type:ty)*) $(-> $answer:ty)?
            $(= $refusal:ident)? $($body:block)? $(;)?
        )*
    ) => {
        $(#[$about])*
        pub unsafe trait $Driver: $($bounds)+ {
            $($crate::tap::contract!(
                @declare [$(#[$doc])*] [$($fn)+] [(&$self $(, $arg: $type)*) $(-> $answer)?] $($refusal)? $($body)?
            );)*
        }

        // SAFETY: every call that is not refused is the device's own, which keeps the promise.
        unsafe impl<D: $Driver, T: $crate::tap::Tap> $Driver for $crate::tap::Tapped<D, T> {
            $($($fn)+(&$self $(, $arg: $type)*) $(-> $answer)? {
                $($crate::tap::contract!(@see $self.tap, $($seen)*);)?
                $crate::tap::contract!(@call $self.device, $($fn)+($($arg),*))
            })*
        }

        /// A driver that wraps a driver: a call that it does not override goes to the wrapped device.
        ///
        /// # Safety
        /// The overridden calls keep the promise of a driver.
        pub(crate) unsafe trait Around: Send + Sync + std::fmt::Debug {
            /// The type of the wrapped device.
            type Device: $Driver;

            /// Returns the wrapped device.
            fn around(&self) -> &Self::Device;

            $(
                #[allow(clippy::missing_safety_doc)] // As of the contract.
                $($fn)+(&$self $(, $arg: $type)*) $(-> $answer)? {
                    $crate::tap::contract!(@call $self.around(), $($fn)+($($arg),*))
                }
            )*
        }

        // SAFETY: a call is the device's own, or its override keeps the promise.
        unsafe impl<A: Around> $Driver for A {
            $($($fn)+(&$self $(, $arg: $type)*) $(-> $answer)? {
                $crate::tap::contract!(@around $self, $($fn)+($($arg),*))
            })*
        }

        // SAFETY: every call is the device's own, which keeps the promise.
        unsafe impl<D: $Driver + ?Sized> $Driver for std::sync::Arc<D> {
            $($($fn)+(&$self $(, $arg: $type)*) $(-> $answer)? {
                $crate::tap::contract!(@call (**$self), $($fn)+($($arg),*))
            })*
        }
    };
    (@declare [$($doc:tt)*] [$($fn:ident)+] [$($types:tt)*]) => { $($doc)* $($fn)+ $($types)*; };
    (@declare [$($doc:tt)*] [$($fn:ident)+] [$($types:tt)*] $refusal:ident) => {
        $($doc)*
        #[allow(unused_variables)]
        $($fn)+ $($types)* {
            Err($crate::errors::failed($crate::tap::contract!(@name $($fn)+), $refusal))
        }
    };
    (@declare [$($doc:tt)*] [$($fn:ident)+] [$($types:tt)*] $body:block) => {
        $($doc)*
        #[allow(unused_variables)]
        $($fn)+ $($types)* $body
    };
    (@name $(unsafe)? fn $name:ident) => { stringify!($name) };
    // Forgetting cannot fail, so a refusal cannot be returned; only a forked process refuses it.
    (@see $tap:expr, Forget) => {
        if $tap.before($crate::CallKind::Forget, 0).is_err() {
            return;
        }
    };
    (@see $tap:expr, $kind:ident) => { $tap.before($crate::CallKind::$kind, 0)? };
    (@see $tap:expr, $kind:ident: $bytes:ident) => { $tap.before($crate::CallKind::$kind, $bytes)? };
    (@around $it:expr, fn $name:ident($($arg:ident),*)) => { Around::$name($it, $($arg),*) };
    (@around $it:expr, unsafe fn $name:ident($($arg:ident),*)) => {
        // SAFETY: the caller's promise is passed on unchanged.
        unsafe { Around::$name($it, $($arg),*) }
    };
    (@call $device:expr, fn $name:ident($($arg:ident),*)) => { $device.$name($($arg),*) };
    (@call $device:expr, unsafe fn $name:ident($($arg:ident),*)) => {
        // SAFETY: the caller's promise is passed on unchanged.
        unsafe { $device.$name($($arg),*) }
    };
}
pub(crate) use contract;

/// Generates the calls of the contract that a part of a device has under the same name.
macro_rules! hand_on {
    ($($part:ident => {$(
        $(#[$attribute:meta])* $($fn:ident)+(&$self:ident $(, $arg:ident: $type:ty)*) $(-> $answer:ty)?;
    )*})*) => {
        $($(
            $(#[$attribute])*
            $($fn)+(&$self $(, $arg: $type)*) $(-> $answer)? {
                $crate::tap::contract!(@call $self.$part, $($fn)+($($arg),*))
            }
        )*)*
    };
}
pub(crate) use hand_on;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Driver, HostConfig, HostDriver};

    #[test]
    fn layers_count_and_fail() {
        let device: Arc<dyn Driver> = Arc::new(HostDriver::new(HostConfig::default()).unwrap());
        let driver = Failing::new(Counting::new(device));
        let granularity = driver.properties().granularity;
        driver.fail_at_kind(CallKind::Create, 1);
        let chunk = driver.create(granularity).expect("the first is let through");
        assert!(matches!(driver.create(granularity), Err(DriverError::OutOfMemory { .. })));
        driver.destroy(chunk).expect("the chunk is known");
        assert_eq!(driver.struck(), [CallKind::Create]);
        let counts = driver.device().counts();
        assert_eq!((counts[CallKind::Create], counts[CallKind::Destroy], counts.total()), (1, 1, 2));
    }
}
