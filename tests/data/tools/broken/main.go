// Does not compile.
package main

func main() { undefinedWord() }
