package results

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Read reads the lines of a file of results. An unknown key is an error, because the page would
// silently lack its content.
func Read(r io.Reader) ([]Entry, error) {
	decoder := json.NewDecoder(r)
	decoder.DisallowUnknownFields()
	var entries []Entry
	for {
		var e Entry
		switch err := decoder.Decode(&e); {
		case errors.Is(err, io.EOF):
			return entries, nil
		case err != nil:
			return nil, fmt.Errorf("result %d: %w", len(entries)+1, err)
		case e == Entry{}:
			return nil, fmt.Errorf("result %d has none of figure, line, note, version, machine", len(entries)+1)
		}
		entries = append(entries, e)
	}
}
