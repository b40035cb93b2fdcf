// Package webui builds the page of `underlayctl ui` from a survey.Live: the tables of the other
// commands and the objects with a timeline. The page draws the resulting View as it is.
//
// A View must never contain a secret, because all of it is sent to a browser. The package makes
// no decisions: survey and doctor do, so that the page and the other commands agree.
//
// Package server, below this one, serves the page.
package webui
