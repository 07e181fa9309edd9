//! Every failure that stories have found, in its shortest form.
