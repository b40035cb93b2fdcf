// Package webui makes of a look at a cluster what the page of `underlayctl ui` shows: the
// tables of the other commands, one part below the other, and the objects that have a timeline.
// A survey.Live goes in, a View comes out, and the page draws it as it is.
//
// It must never hold a secret, because all of it goes to a browser, and it judges nothing:
// survey and doctor do, so that the page and the other commands show the same of one look.
//
// The server of the page is the package below it.
package webui
