//! The arrows of a crate: a file uses another one if it names a path that leads there. Also finds circles of files.
//!
//! A path is followed through re-exports to the file that defines the name. The root of a crate is excluded: it lists
//! modules and re-exports. Method calls are not seen, because they name no file.

use std::collections::{BTreeMap, BTreeSet};

use crate::paths::{Named, defines, named};
use crate::source::Source;

/// A module as its path in the crate.
pub(crate) type Module = Vec<String>;

/// The files of a crate, each with the files that it uses.
pub(crate) struct Arrows {
    /// For each file, the files that it uses, with one name that it takes from each.
    pub(crate) of: BTreeMap<Module, BTreeMap<Module, String>>,
}

/// A file with the paths that it names.
struct File<'s> {
    source: &'s Source,
    named: Vec<Named>,
}

struct Files<'s>(BTreeMap<Module, File<'s>>);

/// Returns the crate of a file in `src`, and the file's path as a module.
pub(crate) fn module_of(path: &str) -> Option<(&str, Module)> {
    let (crate_name, inside) = path.strip_prefix("crates/")?.split_once("/src/")?;
    let mut module: Module = inside.strip_suffix(".rs")?.split('/').map(str::to_owned).collect();
    if module.last().is_some_and(|name| name == "mod") || module == ["lib"] {
        module.pop();
    }
    Some((crate_name, module))
}

/// Returns a module as lists have it.
pub(crate) fn text(module: &Module) -> String {
    module.join("/")
}

impl Arrows {
    /// Finds the arrows of one crate.
    pub(crate) fn of_crate<'s>(crate_name: &str, sources: impl Iterator<Item = &'s Source>) -> Self {
        let files = sources.filter_map(|source| {
            let (name, module) = module_of(&source.path)?;
            (name == crate_name).then(|| (module, File { source, named: named(source) }))
        });
        let files = Files(files.collect());
        let of =
            files.0.keys().filter(|module| !module.is_empty()).map(|module| (module.clone(), files.used_by(module)));
        Self { of: of.collect() }
    }

    /// Returns the number of arrows.
    pub(crate) fn count(&self) -> usize {
        self.of.values().map(BTreeMap::len).sum()
    }

    /// Returns the files that use each other in a circle. A module and its own submodules are no circle: it declares
    /// them.
    pub(crate) fn circles(&self) -> Vec<BTreeSet<String>> {
        let mut found = Vec::new();
        let mut open = vec![self.of.keys().cloned().collect::<BTreeSet<Module>>()];
        while let Some(among) = open.pop() {
            for mut circle in self.connected(&among) {
                let is_parent = |parent: &&Module| circle.iter().all(|other| other.starts_with(parent));
                match circle.iter().find(is_parent).cloned() {
                    Some(parent) => {
                        circle.remove(&parent);
                        open.push(circle);
                    }
                    None => found.push(circle.iter().map(text).collect()),
                }
            }
        }
        found.sort();
        found
    }

    /// Returns the sets of more than one file that all reach each other.
    fn connected(&self, among: &BTreeSet<Module>) -> Vec<BTreeSet<Module>> {
        let mut left = among.clone();
        let mut found = Vec::new();
        while let Some(first) = left.first().cloned() {
            let forward = self.reached(&first, &left, |from, to| self.uses(from, to));
            let backward = self.reached(&first, &left, |from, to| self.uses(to, from));
            let both: BTreeSet<Module> = forward.intersection(&backward).cloned().collect();
            left.retain(|module| !both.contains(module));
            if both.len() > 1 {
                found.push(both);
            }
        }
        found
    }

    fn uses(&self, from: &Module, to: &Module) -> bool {
        self.of.get(from).is_some_and(|used| used.contains_key(to))
    }

    /// Returns the files that are reached from a file by steps in `among`.
    fn reached(
        &self,
        from: &Module,
        among: &BTreeSet<Module>,
        step: impl Fn(&Module, &Module) -> bool,
    ) -> BTreeSet<Module> {
        let mut reached = BTreeSet::from([from.clone()]);
        let mut open = vec![from.clone()];
        while let Some(at) = open.pop() {
            for next in among.iter().filter(|next| step(&at, next)) {
                if reached.insert(next.clone()) {
                    open.push(next.clone());
                }
            }
        }
        reached
    }
}

impl Files<'_> {
    fn used_by(&self, module: &Module) -> BTreeMap<Module, String> {
        let mut used = BTreeMap::new();
        for named in &self.0[module].named {
            let Some((target, rest)) = self.resolve(module, named, 0) else { continue };
            // Naming a module alone is no use of it. A module may re-export the names of its submodules.
            let is_module = rest.is_empty() && named.alias.is_some();
            let is_handed_on = named.is_public && target.starts_with(module);
            if target != *module && !target.is_empty() && !is_module && !is_handed_on {
                used.entry(target).or_insert_with(|| rest.first().cloned().unwrap_or_default());
            }
        }
        used
    }

    /// Returns the file that a path leads to, and the rest of the path in that file.
    fn resolve(&self, from: &Module, named: &Named, depth: usize) -> Option<(Module, Vec<String>)> {
        // In a crate that compiles, re-exports end somewhere. Longer chains are not followed.
        if depth > 8 {
            return None;
        }
        let mut at = [from.as_slice(), &named.within].concat();
        let mut rest = named.segments.as_slice();
        match rest.first()?.as_str() {
            "crate" => (at, rest) = (Module::new(), &rest[1..]),
            "self" => rest = &rest[1..],
            "super" => {}
            first => {
                let is_child = self.0.contains_key(&[from.as_slice(), &[first.to_owned()]].concat());
                if !is_child {
                    let known = self.0[from].named.iter().find(|it| {
                        it.alias.as_deref() == Some(first) && it.segments.first().is_some_and(|own| own != first)
                    })?;
                    let segments = [known.segments.as_slice(), &rest[1..]].concat();
                    let behind = Named { segments, ..known.clone() };
                    return self.resolve(from, &behind, depth + 1);
                }
            }
        }
        while rest.first().is_some_and(|name| name == "super") {
            at.pop();
            rest = &rest[1..];
        }
        self.follow(at, rest, depth)
    }

    /// Follows names from a module on.
    fn follow(&self, mut at: Module, mut rest: &[String], depth: usize) -> Option<(Module, Vec<String>)> {
        while let Some((first, behind)) = rest.split_first() {
            let child = [at.as_slice(), std::slice::from_ref(first)].concat();
            if !self.0.contains_key(&child) {
                break;
            }
            (at, rest) = (child, behind);
        }
        // The text of an inline module is in the file that contains it.
        while !self.0.contains_key(&at) {
            at.pop()?;
        }
        let Some(first) = rest.first().filter(|name| *name != "*") else { return Some((at, rest.to_vec())) };
        let file = &self.0[&at];
        if !defines(file.source, first) {
            let on = |it: &&Named| it.is_public && it.within.is_empty();
            for known in file.named.iter().filter(on) {
                let is_it = known.alias.as_deref() == Some(first);
                let is_all = known.segments.last().is_some_and(|name| name == "*");
                if !is_it && !is_all {
                    continue;
                }
                let mut segments = known.segments.clone();
                match is_it {
                    true => segments.extend_from_slice(&rest[1..]),
                    false => segments.splice(segments.len() - 1.., rest.iter().cloned()).for_each(drop),
                }
                let behind = Named { segments, ..known.clone() };
                if let Some(found) = self.resolve(&at, &behind, depth + 1) {
                    return Some(found);
                }
            }
        }
        Some((at, rest.to_vec()))
    }
}

/// Returns the arrows of snippets, each a path below `crates/x/src/` and a text.
#[cfg(test)]
pub(crate) fn of_snippets(snippets: &[(&str, &str)]) -> Arrows {
    let sources: Vec<Source> =
        snippets.iter().map(|(path, text)| Source::new(&format!("crates/x/src/{path}"), text)).collect();
    Arrows::of_crate("x", sources.iter())
}

#[test]
fn a_path_is_followed_to_its_file() {
    let arrows = of_snippets(&[
        ("lib.rs", "mod a;\nmod b;\nmod c;\npub use c::Thing;"),
        ("a.rs", "use crate::Thing;\nuse crate::b;\nfn f() { b::deep::g() }"),
        ("b/mod.rs", "pub(crate) mod deep;\npub(crate) use deep::h;\nstruct Own;"),
        ("b/deep.rs", "pub(crate) fn g() {}\npub(crate) fn h(own: super::Own) {}"),
        ("c.rs", "use crate::b::h;\nstruct Thing;\n#[cfg(test)]\nmod tests { use crate::a::f; }"),
    ]);
    let found: Vec<String> = arrows
        .of
        .iter()
        .flat_map(|(from, to)| to.keys().map(move |to| format!("{}>{}", text(from), text(to))))
        .collect();
    assert_eq!(found, ["a>b/deep", "a>c", "b/deep>b", "c>b/deep"]);
    assert_eq!(arrows.count(), 4);
}
