//! Tests the machine with pickles written by hand, instruction by instruction.

use super::machine::long;
use super::*;

fn error(bytes: &[u8]) -> String {
    Pickle::read(bytes).expect_err("this pickle is wrong").to_string()
}

#[test]
fn numbers_of_all_lengths() {
    let pickle = Pickle::read(b"\x80\x02]q\0(J\xfe\xff\xff\xffK\x07M\x00\x01\x8a\x05\x00\x00\x00\x00\x01e.").unwrap();
    let items = pickle.items(pickle.top()).unwrap();
    assert_eq!(items, [Value::Int(-2), Value::Int(7), Value::Int(256), Value::Int(1 << 32)]);
    assert_eq!(long(b""), Value::Int(0));
    assert_eq!(long(b"\xff"), Value::Int(-1));
    assert_eq!(long(b"\xff\x00"), Value::Int(255));
    assert_eq!(long(&[0xff; 12]), Value::Int(-1));
    assert_eq!(long(b"\0\0\0\0\0\0\0\x80\0"), Value::Huge);
    assert_eq!(long(&[1; 9]), Value::Huge);
    let half = Pickle::read(b"\x80\x02G\x3f\xe0\0\0\0\0\0\0.").unwrap();
    assert_eq!(half.top(), Value::Float(0.5));
}

#[test]
fn dicts_keep_order_and_the_last_of_a_key_counts() {
    let pickle = Pickle::read(b"\x80\x04}\x94(\x8c\x01a\x94K\x01\x8c\x01b\x94K\x02h\x01K\x03u.").unwrap();
    assert_eq!(pickle.under(pickle.top(), "a"), Some(Value::Int(3)));
    assert_eq!(pickle.under(pickle.top(), "b"), Some(Value::Int(2)));
    assert_eq!(pickle.under(pickle.top(), "c"), None);
    assert_eq!(pickle.entries(pickle.top()).unwrap().count(), 3);
    assert_eq!(pickle.place(pickle.top()), Place::Byte(2));
}

#[test]
fn shared_values_stay_shared() {
    // Nested lists, each holding the one before ten times: 10^20 items if they were not shared.
    let mut bytes = b"\x80\x04]\x94".to_vec();
    for level in 0..20_u8 {
        bytes.extend(b"0](");
        bytes.extend([b'h', level].repeat(10));
        bytes.extend(b"e\x94");
    }
    bytes.push(b'.');
    let pickle = Pickle::read(&bytes).unwrap();
    assert_eq!(pickle.items(pickle.top()).unwrap().len(), 10);
    assert_eq!(pickle.nodes.len(), 21);
}

#[test]
fn a_list_may_hold_itself() {
    let pickle = Pickle::read(b"\x80\x02]q\0h\0a.").unwrap();
    assert_eq!(pickle.items(pickle.top()).unwrap(), [pickle.top()]);
}

#[test]
fn code_is_refused_and_not_run() {
    let text = error(b"\x80\x02cos\nsystem\nX\x02\0\0\0ls\x85R.");
    assert!(text.starts_with("byte 2: the pickle imports `os.system`; nothing of it was run"), "{text}");
    let text = error(b"\x80\x04\x8c\x02os\x8c\x06system\x93.");
    assert!(text.starts_with("byte 14: the pickle imports or calls something"), "{text}");
}

#[test]
fn broken_pickles_are_refused_at_their_byte() {
    for (bytes, expected) in [
        (&b""[..], "byte 0: the pickle ends in the middle"),
        (b"\x80\x04", "byte 2: the pickle ends in the middle"),
        (b"\x80\x04.", "byte 2: broken pickle: an instruction finds too few values"),
        (b"\x80\x04X\xff\xff\xff\xffab", "byte 9: the pickle ends in the middle"),
        (b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xffab", "byte 13: the pickle ends in the middle"),
        (b"\x80\x04\x95\x09\0\0\0\0\0\0\0N.", "byte 13: the pickle ends in the middle"),
        (b"\x80\x09", "byte 0: broken pickle: protocol 9"),
        (b"\x80\x04Ne.", "byte 3: broken pickle: items without a mark"),
        (b"\x80\x04](0.", "byte 4: broken pickle: an instruction finds too few values"),
        (b"\x80\x04(\x85.", "byte 3: broken pickle: an instruction finds too few values"),
        (b"\x80\x04NNa.", "byte 4: broken pickle: items are added"),
        (b"\x80\x04}(Nu.", "byte 5: broken pickle: items are added"),
        (b"\x80\x04(Nd.", "byte 4: broken pickle: a dict with a key and no value"),
        (b"\x80\x04h\x03.", "byte 2: broken pickle: memo entry 3 is used before"),
        (b"\x80\x04Nr\xff\xff\xff\xff.", "byte 3: broken pickle: memo entry 4294967295 is out of all order"),
        (b"\x80\x04\xfe.", "byte 2: broken pickle: no instruction has the number 0xfe"),
        (b"\x80\x04\x8f.", "byte 2: the pickle holds a set"),
    ] {
        let text = error(bytes);
        assert!(text.starts_with(expected), "{bytes:?}: {text}");
    }
}

#[test]
fn memory_is_in_proportion_to_the_input() {
    let containers = [b"\x80\x04".as_slice(), &b"]".repeat(4 << 20), b"."].concat();
    assert!(error(&containers).contains("takes more memory than 20 times its size"));
    let numbers = [b"\x80\x04](".as_slice(), &b"K\x01".repeat(4 << 20), b"e."].concat();
    let pickle = Pickle::read(&numbers).expect("a list of numbers is what it looks like");
    assert_eq!(pickle.items(pickle.top()).map(<[Value]>::len), Some(4 << 20));
}
