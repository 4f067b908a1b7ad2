//! The stack machine that runs a pickle, without the instructions that import or call.

use super::{Node, VALUES_MAX, Value};
use crate::recorded::{Place, Refusal, input};

/// The memory for values and containers: this much for each byte of the input, and this much in any case. A list of
/// small numbers takes up to 16 B for each of its bytes, including the stack; a byte that makes an empty container
/// takes 48.
const MEMORY_PER_BYTE: usize = 20;
const MEMORY_ALWAYS: usize = 64 << 20;

type Step<T> = Result<T, Refusal>;

/// Runs a pickle. Returns its containers and its whole value.
pub(super) fn run(input: &[u8]) -> Step<(Vec<Node>, Value)> {
    if u32::try_from(input.len()).is_err() {
        return Err(Refusal::new(Place::Whole, "a pickle of more than 4 GiB"));
    }
    let mut machine = Machine { input, ..Machine::default() };
    loop {
        if let Some(top) = machine.step()? {
            return Ok((machine.nodes, top));
        }
        if machine.made > VALUES_MAX {
            return Err(machine.too_many());
        }
        if machine.taken > MEMORY_ALWAYS + MEMORY_PER_BYTE * input.len() {
            return Err(machine.too_large());
        }
    }
}

/// The stack machine.
#[derive(Default)]
struct Machine<'a> {
    input: &'a [u8],
    /// The next byte.
    at: usize,
    /// The begin of the current instruction.
    began: usize,
    stack: Vec<Value>,
    /// Heights of the stack at which marks lie; nothing below the last one may be taken.
    marks: Vec<usize>,
    memo: Vec<Option<Value>>,
    nodes: Vec<Node>,
    /// The number of values made so far.
    made: usize,
    /// The bytes of memory that values, containers and the memo have taken so far.
    taken: usize,
}

impl<'a> Machine<'a> {
    /// Runs one instruction. Returns the whole value after the last one.
    fn step(&mut self) -> Step<Option<Value>> {
        self.began = self.at;
        let code = self.byte()?;
        match code {
            b'.' => return self.pop().map(Some),
            b'N' => self.push(Value::None),
            0x88 => self.push(Value::Bool(true)),
            0x89 => self.push(Value::Bool(false)),
            b'J' | b'K' | b'M' | 0x8a | 0x8b | b'G' => self.number(code)?,
            b'X' | 0x8c | 0x8d | b'U' | b'T' => self.text(code)?,
            b'C' | b'B' | 0x8e | 0x96 => self.bytes(code)?,
            b'(' => self.marks.push(self.stack.len()),
            b'0' => self.pop().map(drop)?,
            b'1' => self.take_marked().map(drop)?,
            b'2' => {
                let top = self.pop()?;
                self.push(top);
                self.push(top);
            }
            b']' | b')' | b'}' | b'l' | b't' | b'd' | 0x85..=0x87 => self.container(code)?,
            b'a' | b'e' | b's' | b'u' => self.extend(code)?,
            b'q' | b'r' | 0x94 | b'h' | b'j' => self.remember(code)?,
            0x80 => {
                let protocol = self.byte()?;
                if !(2..=5).contains(&protocol) {
                    return Err(self.refuse(format!("protocol {protocol}; 2 to 5 are known")));
                }
            }
            0x95 => {
                let length = self.unsigned(8)?;
                if length > (self.input.len() - self.at) as u64 {
                    return Err(self.cut_short());
                }
            }
            _ => return Err(self.foreign(code)),
        }
        Ok(None)
    }

    fn number(&mut self, code: u8) -> Step<()> {
        let value = match code {
            b'J' => Value::Int(i64::from(self.unsigned(4)? as u32 as i32)),
            b'K' => Value::Int(self.unsigned(1)? as i64),
            b'M' => Value::Int(self.unsigned(2)? as i64),
            b'G' => Value::Float(f64::from_bits(self.unsigned(8)?.swap_bytes())),
            _ => {
                let length = self.unsigned(if code == 0x8a { 1 } else { 4 })?;
                long(self.slice(length)?)
            }
        };
        self.push(value);
        Ok(())
    }

    fn text(&mut self, code: u8) -> Step<()> {
        let length = self.unsigned(match code {
            b'U' | 0x8c => 1,
            b'X' | b'T' => 4,
            _ => 8,
        })?;
        let start = self.at as u32;
        let length = self.slice(length)?.len() as u32;
        self.push(Value::Text(start, length));
        Ok(())
    }

    fn bytes(&mut self, code: u8) -> Step<()> {
        let length = self.unsigned(match code {
            b'C' => 1,
            b'B' => 4,
            _ => 8,
        })?;
        self.slice(length)?;
        self.push(Value::Bytes);
        Ok(())
    }

    fn container(&mut self, code: u8) -> Step<()> {
        let items = match code {
            b']' | b')' | b'}' => Vec::new(),
            b'l' | b't' | b'd' => self.take_marked()?,
            _ => {
                let count = usize::from(code - 0x84);
                let Some(first) = self.stack.len().checked_sub(count).filter(|first| *first >= self.floor()) else {
                    return Err(self.too_few());
                };
                self.stack.split_off(first)
            }
        };
        if code == b'd' && items.len() % 2 != 0 {
            return Err(self.refuse("a dict with a key and no value"));
        }
        let node = self.nodes.len() as u32;
        self.taken += size_of::<Node>() + items.capacity() * size_of::<Value>();
        self.nodes.push(Node { at: self.began as u32, items });
        self.push(match code {
            b']' | b'l' => Value::List(node),
            b'}' | b'd' => Value::Dict(node),
            _ => Value::Tuple(node),
        });
        Ok(())
    }

    /// Adds the top of the stack, or everything above the last mark, to the list or dict below it.
    fn extend(&mut self, code: u8) -> Step<()> {
        let items = match code {
            b'a' => vec![self.pop()?],
            b's' => {
                let value = self.pop()?;
                vec![self.pop()?, value]
            }
            _ => self.take_marked()?,
        };
        let target = self.stack.last().copied().filter(|_| self.stack.len() > self.floor());
        let node = match (target, code) {
            (Some(Value::List(node)), b'a' | b'e') => node,
            (Some(Value::Dict(node)), b's' | b'u') if items.len() % 2 == 0 => node,
            _ => return Err(self.refuse("items are added to what is no list or dict")),
        };
        let target = &mut self.nodes[node as usize].items;
        let before = target.capacity();
        target.extend_from_slice(&items);
        self.taken += (target.capacity() - before) * size_of::<Value>();
        Ok(())
    }

    /// Puts the top of the stack into the memo, or pushes an entry of the memo.
    fn remember(&mut self, code: u8) -> Step<()> {
        let index = match code {
            b'q' | b'h' => self.unsigned(1)? as usize,
            b'r' | b'j' => self.unsigned(4)? as usize,
            _ => self.memo.len(),
        };
        if matches!(code, b'h' | b'j') {
            let Some(value) = self.memo.get(index).copied().flatten() else {
                return Err(self.refuse(format!("memo entry {index} is used before it is made")));
            };
            self.push(value);
            return Ok(());
        }
        // Writers number entries consecutively, with one instruction for each. A larger index cannot come from a
        // writer.
        if index > self.began {
            return Err(self.refuse(format!("memo entry {index} is out of all order")));
        }
        let top = self.pop()?;
        self.push(top);
        if index >= self.memo.len() {
            self.memo.resize(index + 1, None);
        }
        self.memo[index] = Some(top);
        Ok(())
    }

    fn push(&mut self, value: Value) {
        self.made += 1;
        let before = self.stack.capacity();
        self.stack.push(value);
        self.taken += (self.stack.capacity() - before) * size_of::<Value>();
    }

    /// Returns the height of the stack below which nothing may be popped.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn pop(&mut self) -> Step<Value> {
        match self.stack.pop() {
            Some(value) if self.stack.len() >= self.floor() => Ok(value),
            _ => Err(self.too_few()),
        }
    }

    /// Everything above the last mark, which goes, too.
    fn take_marked(&mut self) -> Step<Vec<Value>> {
        match self.marks.pop() {
            Some(mark) => Ok(self.stack.split_off(mark)),
            None => Err(self.refuse("items without a mark before them")),
        }
    }

    fn byte(&mut self) -> Step<u8> {
        let byte = self.input.get(self.at).copied().ok_or_else(|| self.cut_short())?;
        self.at += 1;
        Ok(byte)
    }

    fn slice(&mut self, length: u64) -> Step<&'a [u8]> {
        let rest = &self.input[self.at..];
        match usize::try_from(length).ok().and_then(|length| rest.get(..length)) {
            Some(slice) => {
                self.at += slice.len();
                Ok(slice)
            }
            None => Err(self.cut_short()),
        }
    }

    /// Reads a little-endian number of `bytes` bytes (1, 2, 4 or 8).
    fn unsigned(&mut self, bytes: u64) -> Step<u64> {
        let slice = self.slice(bytes)?;
        Ok(slice.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    #[cold]
    fn refuse(&self, reason: impl Into<String>) -> Refusal {
        Refusal::new(Place::Byte(self.began as u64), format!("broken pickle: {}", reason.into()))
            .help("the file is damaged or was changed: write the snapshot again")
    }

    #[cold]
    fn too_few(&self) -> Refusal {
        self.refuse("an instruction finds too few values")
    }

    #[cold]
    fn too_many(&self) -> Refusal {
        Refusal::new(Place::Byte(self.began as u64), format!("a pickle of more than {VALUES_MAX} values"))
            .help("record fewer events: _record_memory_history(max_entries=1000000)")
    }

    #[cold]
    fn too_large(&self) -> Refusal {
        let reason = format!("the pickle takes more memory than {MEMORY_PER_BYTE} times its size");
        Refusal::new(Place::Byte(self.began as u64), reason).help("no snapshot does that: write it again")
    }

    #[cold]
    fn cut_short(&self) -> Refusal {
        Refusal::new(Place::Byte(self.input.len() as u64), "the pickle ends in the middle")
            .help("the file was cut short: copy or write it again")
    }

    /// Refuses an instruction that this machine does not have.
    #[cold]
    fn foreign(&self, code: u8) -> Refusal {
        const HELP: &str = "snapshots hold plain data only; do not load this file with Python unless you trust it";
        let at = Place::Byte(self.began as u64);
        match code {
            b'c' => {
                let mut lines = self.input[self.at..].split(|&byte| byte == b'\n');
                let mut name = || input::shown(&String::from_utf8_lossy(lines.next().unwrap_or(&[])));
                let (module, name) = (name(), name());
                Refusal::new(at, format!("the pickle imports `{module}.{name}`; nothing of it was run")).help(HELP)
            }
            b'R' | b'b' | b'i' | b'o' | 0x81 | 0x92 | 0x93 | b'P' | b'Q' | 0x82..=0x84 => {
                Refusal::new(at, "the pickle imports or calls something; nothing of it was run").help(HELP)
            }
            0x8f..=0x91 => Refusal::new(at, "the pickle holds a set, which no snapshot does").help(HELP),
            _ => self.refuse(format!("no instruction has the number {code:#04x}")),
        }
    }
}

/// Decodes a little-endian integer of any length, in two's complement.
pub(super) fn long(bytes: &[u8]) -> Value {
    let fill = if bytes.last().is_some_and(|&byte| byte >= 0x80) { 0xff } else { 0 };
    let mut number = [fill; 8];
    for (index, &byte) in bytes.iter().enumerate() {
        match number.get_mut(index) {
            Some(place) => *place = byte,
            None if byte == fill => {}
            None => return Value::Huge,
        }
    }
    let value = i64::from_le_bytes(number);
    // Bytes after the eighth only repeat the sign, which must be that of the first eight.
    if (value < 0) == (fill == 0xff) { Value::Int(value) } else { Value::Huge }
}
