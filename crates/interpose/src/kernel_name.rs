//! Names of kernels for people. C++ names are mangled, and have template arguments of hundreds of characters.

use cpp_demangle::{DemangleOptions, Symbol};

/// The length of a name that is shown as it is.
const SHORT: usize = 60;

/// Returns a name as the source has it, without the types of the parameters. Other names than those of C++ stay.
pub(crate) fn readable(name: &str) -> String {
    let options = DemangleOptions::new().no_params().no_return_type();
    let symbol = Symbol::new(name).ok().filter(|_| name.starts_with("_Z"));
    symbol.and_then(|symbol| symbol.demangle_with_options(&options).ok()).unwrap_or_else(|| name.to_owned())
}

/// Returns a name without its template arguments, if it is long: `fill<...>`.
pub(crate) fn short(name: &str) -> String {
    if name.chars().count() <= SHORT {
        return name.to_owned();
    }
    let (mut text, mut depth) = (String::new(), 0_usize);
    for c in name.chars() {
        match c {
            '<' => {
                text += if depth == 0 { "<..." } else { "" };
                depth += 1;
            }
            '>' => {
                depth = depth.saturating_sub(1);
                text += if depth == 0 { ">" } else { "" };
            }
            _ if depth == 0 => text.push(c),
            _ => {}
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_readable() {
        for (name, shown) in [
            ("touch_kernel", "touch_kernel"),
            ("_Z5scalePfi", "scale"),
            ("_Z4fillILi4EfEvPT0_S0_", "fill<4, float>"),
            ("_ZN2at6native12_GLOBAL__N_13addEPf", "at::native::(anonymous namespace)::add"),
            ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
            ("_Znot a name", "_Znot a name"),
            ("", ""),
        ] {
            assert_eq!(readable(name), shown);
        }
    }

    #[test]
    fn long_names_are_short() {
        let long =
            "at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul>>";
        assert_eq!(short(long), "at::native::vectorized_elementwise_kernel<...>");
        assert_eq!(short("fill<4, float>"), "fill<4, float>");
        assert_eq!(short(&"x".repeat(90)), "x".repeat(90));
        let operators = format!("{}<operator>>", "a".repeat(60));
        assert!(short(&operators).starts_with(&"a".repeat(60)), "no panic");
    }
}
