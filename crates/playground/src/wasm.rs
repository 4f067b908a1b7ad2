//! The functions that the browser calls. The caller writes a text to the address from [`playground_input`] and calls
//! [`playground_judge`]. The answer is at the address from [`playground_output`] until the next call. Only one thread
//! calls these functions.

use std::sync::Mutex;

use crate::judge::{Answer, judge};

static INPUT: Mutex<Vec<u8>> = Mutex::new(Vec::new());
static OUTPUT: Mutex<Vec<u8>> = Mutex::new(Vec::new());

fn lock(bytes: &'static Mutex<Vec<u8>>) -> std::sync::MutexGuard<'static, Vec<u8>> {
    bytes.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Returns the address to which a text of this many bytes is to be written.
#[unsafe(no_mangle)]
pub extern "C" fn playground_input(bytes: usize) -> *mut u8 {
    let mut input = lock(&INPUT);
    input.clear();
    input.resize(bytes, 0);
    input.as_mut_ptr()
}

/// Judges the text that was written. Returns the number of bytes of the answer.
#[unsafe(no_mangle)]
pub extern "C" fn playground_judge() -> usize {
    let answer = match std::str::from_utf8(&lock(&INPUT)) {
        Ok(text) => judge(text),
        Err(_) => Answer { refusal: Some((0, "the text is not UTF-8".to_owned())), ..Answer::default() },
    };
    let mut output = lock(&OUTPUT);
    *output = serde_json::to_vec(&answer).unwrap_or_default();
    output.len()
}

/// Returns the address of the answer: JSON of an [`Answer`].
#[unsafe(no_mangle)]
pub extern "C" fn playground_output() -> *const u8 {
    lock(&OUTPUT).as_ptr()
}
