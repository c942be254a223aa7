extern main {
}
