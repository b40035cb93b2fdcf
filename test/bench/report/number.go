package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// number prints a value with two or three significant digits, whole ones and those
// from 100 on in full, with commas between thousands.
func number(v float64) string {
	if v == math.Trunc(v) || math.Abs(v) >= 100 {
		return grouped(int64(math.Round(v)))
	}
	digits := 2
	switch {
	case math.Abs(v) >= 10:
		digits = 1
	case math.Abs(v) < 0.1:
		digits = 3
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}

func grouped(n int64) string {
	if n < 0 {
		return "-" + grouped(-n)
	}
	if n < 1000 {
		return strconv.FormatInt(n, 10)
	}
	return fmt.Sprintf("%s,%03d", grouped(n/1000), n%1000)
}

// slug is a plot's file name.
func slug(title string) string {
	var words []string
	for _, word := range strings.FieldsFunc(strings.ToLower(title), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != ','
	}) {
		if word = strings.ReplaceAll(word, ",", ""); word != "" {
			words = append(words, word)
		}
	}
	return strings.Join(words, "-")
}
