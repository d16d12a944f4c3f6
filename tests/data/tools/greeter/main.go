// The smallest program.
package main

func main() {}
