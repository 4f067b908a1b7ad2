//! Lifetimes from a table: `id,lower,upper,size`, one buffer a line, the columns in any order.
//!
//! The format is that of the MiniMalloc benchmark, with an optional `alignment`. An `offset` column is ignored, so that
//! a plan can be planned again. Any other column is refused, because its meaning for a buffer is unknown.
//! The file comes from outside and is not trusted. Errors name the line and the column.

use std::collections::HashMap;
use std::io::BufRead;
use std::path::Path;

use millpond_plan::{Buffer, Invalid, Lifetime, Problem};

use crate::recorded::csv::Fields;
use crate::recorded::input::{Lines, shown};
use crate::recorded::{Place, Refusal};
use crate::source::{Kind, Opened};

/// The buffers of a file.
#[derive(Clone, Debug)]
pub struct Instance {
    /// The rows, as they stand in the file.
    pub rows: Vec<Row>,
    /// The same buffers as a problem: buffer `i` is row `i`.
    pub problem: Problem,
    /// Notes for the user on how the file was read.
    pub notes: Vec<String>,
}

/// One buffer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// Its id in the file.
    pub id: String,
    /// Its lifetime.
    pub life: Lifetime,
    /// Its size and alignment.
    pub buffer: Buffer,
}

/// The largest number of rows of a file.
const ROWS_MAX: usize = 1 << 22;

const SHAPE: &str = "the first line names the columns `id,lower,upper,size` in any order (and `alignment`, if there is \
    one); every other line is a buffer";

/// A column that is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Column {
    Id,
    Lower,
    Upper,
    Size,
    Alignment,
    /// Ignored.
    Offset,
}

impl Column {
    const ALL: [(Column, &'static str); 6] = [
        (Column::Id, "id"),
        (Column::Lower, "lower"),
        (Column::Upper, "upper"),
        (Column::Size, "size"),
        (Column::Alignment, "alignment"),
        (Column::Offset, "offset"),
    ];

    fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// Reads a file, gzipped or not.
///
/// # Errors
/// The file cannot be read or is not a valid table. The refusal names the file.
pub fn read_file(path: &Path) -> Result<Instance, Refusal> {
    let read = Opened::open(path).and_then(|opened| match opened.kind() {
        Kind::Table | Kind::Other => read(opened.unzipped()),
        _ => Err(opened.refuse("plan").expect("its kind is known")),
    });
    read.map_err(|refusal| refusal.in_file(path))
}

/// Reads a table.
///
/// # Errors
/// The table is not valid. The refusal has the line and the column.
pub fn read(source: impl BufRead) -> Result<Instance, Refusal> {
    let mut lines = Lines::new(source);
    let Some((line, header)) = lines.next_line()? else {
        return Err(Refusal::new(Place::Whole, "the file is empty").help(SHAPE));
    };
    let mut fields = Fields::new();
    let quoted = |line: u64| move |reason: &str| Refusal::new(Place::Line(line), reason);
    fields.read(header.trim_start_matches('\u{feff}')).map_err(quoted(line))?;
    let columns = columns(line, &fields)?;
    let mut notes = Vec::new();
    if columns.contains(&Column::Offset) {
        notes.push("the column `offset` is passed over: all buffers are placed anew".to_owned());
    }
    let mut rows: Vec<Row> = Vec::new();
    let mut row_lines: Vec<u64> = Vec::new();
    let mut known: HashMap<String, u64> = HashMap::new();
    while let Some((line, text)) = lines.next_line()? {
        fields.read(text).map_err(quoted(line))?;
        let row = row(line, &fields, &columns)?;
        if let Some(first) = known.insert(row.id.clone(), line) {
            let reason = format!("column `id`: `{}` is on line {first} already", shown(&row.id));
            return Err(Refusal::new(Place::Line(line), reason).help("every buffer has an id of its own"));
        }
        if rows.len() == ROWS_MAX {
            return Err(Refusal::new(Place::Line(line), format!("more than {ROWS_MAX} buffers")));
        }
        rows.push(row);
        row_lines.push(line);
    }
    if rows.is_empty() {
        return Err(Refusal::new(Place::Line(lines.last_line()), "a table without any buffer").help(SHAPE));
    }
    let buffers = rows.iter().map(|row| row.buffer).collect();
    let lives = rows.iter().map(|row| row.life).collect();
    let problem = Problem::from_lifetimes(buffers, lives).map_err(|invalid| refuse(&invalid, &row_lines))?;
    Ok(Instance { rows, problem, notes })
}

/// Parses the header line.
fn columns(line: u64, header: &Fields) -> Result<Vec<Column>, Refusal> {
    let refuse = |reason: String| Err(Refusal::new(Place::Line(line), reason).help(SHAPE));
    let mut columns = Vec::new();
    for name in header.iter() {
        let known = Column::ALL.iter().find(|(_, known)| known.eq_ignore_ascii_case(name));
        let Some(&(column, name)) = known else {
            return refuse(format!("unknown column `{}`", shown(name)));
        };
        if columns.contains(&column) {
            return refuse(format!("the column `{name}` is there twice"));
        }
        columns.push(column);
    }
    let needed = [Column::Id, Column::Lower, Column::Upper, Column::Size];
    match needed.iter().find(|column| !columns.contains(column)) {
        Some(missing) => refuse(format!("there is no column `{}`", missing.name())),
        None => Ok(columns),
    }
}

/// Parses one line as a buffer.
fn row(line: u64, fields: &Fields, columns: &[Column]) -> Result<Row, Refusal> {
    let refuse = |reason: String| Refusal::new(Place::Line(line), reason);
    let mut row =
        Row { id: String::new(), life: Lifetime { lower: 0, upper: 0 }, buffer: Buffer { bytes: 0, alignment: 1 } };
    let mut words = fields.iter();
    for (at, &column) in columns.iter().enumerate() {
        let Some(word) = words.next() else {
            let reason = format!("{at} values, but {} columns: `{}` is missing", columns.len(), column.name());
            return Err(refuse(reason));
        };
        let wrong = |what: &str| refuse(format!("column `{}`: `{}` is {what}", column.name(), shown(word)));
        match column {
            Column::Id if word.is_empty() => return Err(refuse("column `id`: the id is empty".to_owned())),
            Column::Id => word.clone_into(&mut row.id),
            Column::Lower => row.life.lower = word.parse().map_err(|_| wrong("not a step (a whole number)"))?,
            Column::Upper => row.life.upper = word.parse().map_err(|_| wrong("not a step (a whole number)"))?,
            Column::Size => match word.parse() {
                Ok(0) => return Err(wrong("not a size: a buffer has at least 1 byte")),
                Ok(bytes) => row.buffer.bytes = bytes,
                Err(_) => return Err(wrong("not a number of bytes below 2^64")),
            },
            Column::Alignment => match word.parse::<u64>() {
                Ok(alignment) if alignment.is_power_of_two() => row.buffer.alignment = alignment,
                _ => return Err(wrong("not an alignment: give a power of two")),
            },
            Column::Offset => {}
        }
    }
    if let Some(more) = words.next() {
        let reason = format!("`{}` is one value too many: there are {} columns", shown(more), columns.len());
        return Err(refuse(reason));
    }
    let Lifetime { lower, upper } = row.life;
    if lower >= upper {
        let reason = format!("column `upper`: {upper} is not above `lower`, {lower}, so the buffer is never live");
        return Err(refuse(reason).help("a buffer is live from `lower` up to, not including, `upper`"));
    }
    Ok(row)
}

/// Describes an error of the whole problem. Errors of a single row were reported before.
fn refuse(invalid: &Invalid, row_lines: &[u64]) -> Refusal {
    match *invalid {
        Invalid::TooLarge { buffer } => {
            let reason = "column `size`: with this buffer those that are live at once or in a chain pass 2^64 bytes";
            Refusal::new(Place::Line(row_lines[buffer]), reason).help("was another column taken for the size?")
        }
        _ => Refusal::new(Place::Whole, invalid.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        read(text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn columns_come_in_any_order() {
        let it = read(&b"size, ID,upper,lower,offset,alignment\r\n4,b 1,3,-2,99,8\r\n\r\n5,x,9,3,0,1\n"[..]).unwrap();
        let first = Row {
            id: "b 1".to_owned(),
            life: Lifetime { lower: -2, upper: 3 },
            buffer: Buffer { bytes: 4, alignment: 8 },
        };
        assert_eq!((it.rows.len(), &it.rows[0]), (2, &first));
        assert_eq!(it.notes.len(), 1, "the offsets are passed over, and that is said");
    }

    /// Spreadsheets and R write tables this way.
    #[test]
    fn what_is_quoted_is_read() {
        let text =
            "\"id\",\"lower\",\"upper\",\"size\"\r\n\"layer 1, weights\",0,\"2\",16\r\n\"say \"\"so\"\"\",1,3,16\r\n";
        let it = read(text.as_bytes()).unwrap();
        assert_eq!((&*it.rows[0].id, it.rows[0].life.upper, &*it.rows[1].id), ("layer 1, weights", 2, "say \"so\""));
    }

    #[test]
    fn what_is_wrong_is_named_by_line_and_column() {
        for (text, part) in [
            ("", "the file is empty"),
            ("id,lower,upper,size\n", "line 1: a table without any buffer"),
            ("id,lower,size\n", "line 1: there is no column `upper`"),
            ("id,lower,upper,size,gaps\n", "line 1: unknown column `gaps`"),
            ("id,lower,upper,size,size\n", "line 1: the column `size` is there twice"),
            ("id,lower,upper,size\na,0,1\n", "line 2: 3 values, but 4 columns: `size` is missing"),
            ("id,lower,upper,size\na,0,1,4,5\n", "line 2: `5` is one value too many"),
            ("id,lower,upper,size\na,0,1,4\n\nb,0,x,4\n", "line 4: column `upper`: `x` is not a step"),
            ("id,lower,upper,size\na,0,1,0\n", "line 2: column `size`: `0` is not a size"),
            ("id,lower,upper,size\na,0,1,-4\n", "line 2: column `size`: `-4` is not a number of bytes"),
            ("id,lower,upper,size\na,0,1,18446744073709551616\n", "line 2: column `size`"),
            ("id,lower,upper,size\na,0,99999999999999999999,1\n", "line 2: column `upper`"),
            ("id,lower,upper,size\na,7,7,4\n", "line 2: column `upper`: 7 is not above `lower`, 7"),
            ("id,lower,upper,size\na,9,7,4\n", "line 2: column `upper`: 7 is not above `lower`, 9"),
            ("id,lower,upper,size\na,0,1,4\na,1,2,4\n", "line 3: column `id`: `a` is on line 2 already"),
            ("id,lower,upper,size\n,0,1,4\n", "line 2: column `id`: the id is empty"),
            ("id,lower,upper,size\n\"a,0,1,4\n", "line 2: a quote is not closed on this line"),
            ("id,lower,upper,size,alignment\na,0,1,4,3\n", "line 2: column `alignment`: `3` is not an alignment"),
            ("id,lower,upper,size\na,0,2,18446744073709551615\nb,1,3,1\n", "line 3: column `size`: with this buffer"),
        ] {
            let refusal = refused(text);
            assert!(refusal.starts_with(part), "{refusal}\n  should begin with {part}");
        }
    }

    #[test]
    fn huge_sizes_that_never_meet_are_fine() {
        let text = format!("id,lower,upper,size\na,0,1,{0}\nb,1,2,{0}\n", u64::MAX);
        assert_eq!(read(text.as_bytes()).unwrap().rows.len(), 2);
    }
}
