//! The functions that the browser calls. A text is written where [`playground_input`] says; [`playground_judge`] judges
//! it, and the answer lies where [`playground_output`] says, until the next call. One thread calls.

use std::sync::Mutex;

use crate::judge::{Answer, judge};

static INPUT: Mutex<Vec<u8>> = Mutex::new(Vec::new());
static OUTPUT: Mutex<Vec<u8>> = Mutex::new(Vec::new());

fn lock(bytes: &'static Mutex<Vec<u8>>) -> std::sync::MutexGuard<'static, Vec<u8>> {
    bytes.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Where a text of so many bytes is to be written.
#[unsafe(no_mangle)]
pub extern "C" fn playground_input(bytes: usize) -> *mut u8 {
    let mut input = lock(&INPUT);
    input.clear();
    input.resize(bytes, 0);
    input.as_mut_ptr()
}

/// Judges the text that was written: how many bytes the answer has.
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

/// Where the answer is: JSON of an [`Answer`].
#[unsafe(no_mangle)]
pub extern "C" fn playground_output() -> *const u8 {
    lock(&OUTPUT).as_ptr()
}
