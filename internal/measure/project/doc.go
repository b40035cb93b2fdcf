// Package project makes throw-away things in a cloud project, and removes them.
//
// The project may have production servers in it. So these rules hold in one place, the client's
// transport, whatever an experiment asks for and whatever the API answers:
//
//   - What is made bears the label [Label] with the run's name, and a name that begins with it, in
//     the request that makes it, or the request is not sent.
//   - What is changed or removed was made by this run, as a reply or a list has shown by label and
//     name; so was everything that the request leads to. Any other request than a read is not
//     sent. Nor is one that would take something away from what isn't the run's: a network of the
//     run in which somebody has put a server stays. That is looked at right before.
//   - A change is sent only if it is one of the operations that are known, and only with the fields
//     that are known; what is sent is what was judged.
//   - Making something takes consent: what is made is counted, and a request that exceeds the
//     plan is not sent, so that the ceiling of the cost holds. What may have been made counts.
//   - Requests are paced, so that half of the project's budget is left to others.
//   - The token goes nowhere but to the endpoint, and is in no error.
//
// Nothing is tried again by itself, except looking at an action and removing: an experiment must
// see what the API answers. A change that is under way isn't cut short by the end of a context, so
// that what became of it is known.
package project
