//! Builds the playground: `millpond-site WASM REPOSITORY FOLDER` writes `index.html` into the folder.
//!
//! The page is one file, which opens from the disk without a server. Its scripts contain the WebAssembly (in base 64),
//! the examples (the programs of `litmus/` and those in the documentation, named by their headings) and the reference
//! of the language.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use base64::prelude::{BASE64_STANDARD, Engine};
use millpond_litmus::Program;
use serde::Serialize;

/// The pages of the documentation that contain programs.
const PAGES: [&str; 2] = ["docs/litmus.md", "docs/check.md"];

/// The page that describes the language.
const LANGUAGE: &str = "docs/litmus.md";

const PAGE: &str = include_str!("../page/index.html");
const STYLE: &str = include_str!("../page/playground.css");
const SCRIPT: &str = include_str!("../page/playground.js");

/// An example program.
#[derive(Serialize)]
struct Example {
    /// Its source; also the part of the page's address after `#`.
    name: String,
    text: String,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [wasm, repository, folder] = args.as_slice() else {
        return Err("usage: millpond-site WASM REPOSITORY FOLDER".into());
    };
    fs::create_dir_all(folder)?;
    let wasm = BASE64_STANDARD.encode(fs::read(wasm).map_err(|error| format!("{}: {error}", wasm.display()))?);
    let mut examples = documented(repository)?;
    let documented = examples.len();
    examples.extend(corpus(&repository.join("litmus"))?);
    // Inside a script element only `<` could end the script.
    let list = serde_json::to_string(&examples)?.replace('<', "\\u003c");
    let reference = serde_json::to_string(&read(repository, LANGUAGE)?)?.replace('<', "\\u003c");
    let data = format!("const WASM = \"{wasm}\", EXAMPLES = {list}, REFERENCE = {reference};");
    let parts =
        [("@STYLE@", STYLE), ("@PROJECT@", env!("CARGO_PKG_REPOSITORY")), ("@DATA@", &data), ("@SCRIPT@", SCRIPT)];
    let (mut page, mut rest) = (String::new(), PAGE);
    for (mark, part) in parts {
        let (before, after) = rest.split_once(mark).expect("the page has each mark once, in this order");
        page.extend([before, part]);
        rest = after;
    }
    fs::write(folder.join("index.html"), page + rest)?;
    println!("{}: {} examples, {documented} of them of the documentation", folder.display(), examples.len());
    Ok(())
}

fn read(repository: &Path, page: &str) -> Result<String, String> {
    fs::read_to_string(repository.join(page)).map_err(|error| format!("{page}: {error}"))
}

/// Returns the programs in the documentation: the fenced blocks that are programs.
fn documented(repository: &Path) -> Result<Vec<Example>, Box<dyn Error>> {
    let mut examples = Vec::new();
    for page in PAGES {
        let text = read(repository, page)?;
        let (mut heading, mut before) = ("", 0);
        for (at, part) in text.split("```").enumerate() {
            // Every other part is inside fences, after the name of its language.
            if at % 2 == 0 {
                if let Some(last) = part.lines().rfind(|line| line.starts_with('#')) {
                    (heading, before) = (last.trim_start_matches('#').trim(), 0);
                }
                continue;
            }
            let Some((_, text)) = part.split_once('\n') else { continue };
            if Program::parse(text).is_ok_and(|it| !it.ops().is_empty()) {
                before += 1;
                let number = if before == 1 { String::new() } else { format!(" {before}") };
                let name = format!("{page}/{}{number}", heading.replace('/', "-"));
                examples.push(Example { name, text: text.to_owned() });
            }
        }
    }
    Ok(examples)
}

/// Returns the programs of the corpus, by folder and name.
fn corpus(folder: &Path) -> Result<Vec<Example>, Box<dyn Error>> {
    let mut examples = Vec::new();
    for group in fs::read_dir(folder)?.flatten().filter(|entry| entry.path().is_dir()) {
        for file in
            fs::read_dir(group.path())?.flatten().filter(|it| it.path().extension().is_some_and(|it| it == "litmus"))
        {
            let stem = file.path().file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let name = format!("{}/{stem}", group.file_name().to_string_lossy());
            examples.push(Example { name, text: fs::read_to_string(file.path())? });
        }
    }
    examples.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(examples)
}
