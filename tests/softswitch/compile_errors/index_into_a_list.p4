bit<8> second(list<bit<8>> numbers) {
    return numbers[1];
}
