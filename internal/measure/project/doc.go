// Package project makes throw-away things in a cloud project of its own, and removes them.
//
// Its rules:
//
//   - Only an empty project is measured: [Project.Existing] lists what is in it.
//   - What is made bears the label [Label], and a name that [Project.Name] makes. Nothing that lacks
//     either is removed.
//   - Nothing is tried again by itself, except looking at an action and removing: an experiment must
//     see what the API answers. A change that is under way isn't cut short by the end of a context,
//     so that what became of it is known.
package project
