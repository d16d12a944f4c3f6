// A program that says its version.
package main

import "fmt"

var version = "unset"

func main() { fmt.Println("hello", version) }
