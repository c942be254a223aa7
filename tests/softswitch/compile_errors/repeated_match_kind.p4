match_kind { exact, ternary }
match_kind { exact }
